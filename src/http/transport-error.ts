import { messageOf, systemCode } from '../errors.ts';
import { printableLine } from '../printable.ts';

/** Why no whole answer came. */
export type TransportReason =
  | 'unreachable'
  | 'certificate'
  | 'private_address'
  | 'timeout'
  | 'interrupted'
  | 'broken'
  | 'aborted_before_send';

/**
 * A call that got no whole answer. `unsent`: no byte of the request left this machine, so it may be repeated.
 * `sent`: a byte may have left, so the gateway may have handled it.
 */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly phase: 'unsent' | 'sent';
  readonly reason: TransportReason;

  constructor(phase: 'unsent' | 'sent', reason: TransportReason, message: string, cause?: unknown) {
    super(message, { cause });
    this.phase = phase;
    this.reason = reason;
  }

  /** A connection that could not be made. */
  static unsent(cause: unknown, url: URL): TransportError {
    if (cause instanceof TransportError) return cause;
    const reason = reasonOf(cause);
    const hint = reason === 'certificate' ? ': the certificate is not valid for it' : '';
    return new TransportError('unsent', reason, `cannot reach ${url.host}${hint}: ${wordsOf(cause)}`, cause);
  }

  /** A request that was kept back at the last moment, directly before its first byte. */
  static abortedBeforeSend(why: string): TransportError {
    return new TransportError('unsent', 'aborted_before_send', why);
  }

  /** A connection that broke, or a time that ran out, after the first byte may have left. */
  static sent(cause: unknown, url: URL, reason: TransportReason = 'broken'): TransportError {
    if (cause instanceof TransportError) return cause;
    return new TransportError(
      'sent',
      reason,
      `the connection to ${url.host} broke: ${wordsOf(cause)}`,
      cause,
    );
  }
}

const certificateCode =
  /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|ERROR_IN_CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|CRL_|PATH_LENGTH)/;

function reasonOf(cause: unknown): TransportReason {
  const code = systemCode(cause) ?? '';
  if (certificateCode.test(code)) return 'certificate';
  return code === 'MGW_PRIVATE' ? 'private_address' : 'unreachable';
}

// An AggregateError (every address of a name failed) has an empty message of its own.
function wordsOf(cause: unknown): string {
  const inner: unknown = cause instanceof AggregateError ? cause.errors[0] : cause;
  // OpenSSL's own words give the file and line of its source.
  const code = systemCode(cause) ?? '';
  if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)$/.test(code))
    return 'what answers there does not speak TLS (is it an http:// address?)';
  if (code.startsWith('ERR_SSL_')) return `TLS failed (${code})`;
  return printableLine(messageOf(inner) || systemCode(cause) || 'no reason given', 300);
}
