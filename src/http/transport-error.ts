import { messageOf, MgwError, systemCode } from '../errors.ts';
import { printableLine } from '../printable.ts';

/** Why no complete response arrived. */
export type TransportReason =
  | 'unreachable'
  | 'certificate'
  | 'private_address'
  | 'proxy'
  | 'timeout'
  | 'interrupted'
  | 'broken'
  | 'aborted_before_send';

/**
 * A call without a complete response. `unsent`: no byte of the request was sent, so it may be repeated. `sent`: a byte
 * may have been sent, so the gateway may have handled it.
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

  /** Whether the same call would fail again for the same reason. */
  get isPermanent(): boolean {
    return ['certificate', 'private_address', 'proxy'].includes(this.reason);
  }

  /**
   * Returns the error for a connection that could not be made.
   * @param proxy the proxy without its credentials; '' for none
   */
  static unsent(cause: unknown, url: URL, proxy = ''): TransportError {
    if (cause instanceof TransportError) return cause;
    const reason = reasonOf(cause);
    const via = proxy === '' ? '' : ` through the proxy ${proxy}`;
    const hint = reason === 'certificate' ? ': the certificate is not valid' : '';
    return new TransportError(
      'unsent',
      reason,
      `cannot reach ${url.host}${via}${hint}: ${causeText(cause)}`,
      cause,
    );
  }

  /** Returns the error for a request that was stopped immediately before its first byte. */
  static abortedBeforeSend(why: string): TransportError {
    return new TransportError('unsent', 'aborted_before_send', why);
  }

  /** Returns the error for a connection that broke or timed out after the first byte may have been sent. */
  static sent(cause: unknown, url: URL, reason: TransportReason = 'broken'): TransportError {
    if (cause instanceof TransportError) return cause;
    return new TransportError(
      'sent',
      reason,
      `the connection to ${url.host} broke: ${causeText(cause)}`,
      cause,
    );
  }
}

/**
 * Exit 2: the environment sets a proxy that mgw cannot use, so no call succeeds until the setting is corrected. Returns
 * undefined for any other error.
 */
export function proxySettingError(error: unknown): MgwError | undefined {
  if (!(error instanceof TransportError) || error.reason !== 'proxy') return undefined;
  return new MgwError('config', `${error.message}.`, { cause: error });
}

const certificateCode =
  /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|ERROR_IN_CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|CRL_|PATH_LENGTH)/;

function reasonOf(cause: unknown): TransportReason {
  const code = systemCode(cause) ?? '';
  if (certificateCode.test(code)) return 'certificate';
  if (code === 'MGW_PROXY') return 'proxy';
  return code === 'MGW_PRIVATE' ? 'private_address' : 'unreachable';
}

// Returns the text of a connection error. An AggregateError, thrown if every address of a host name failed, has an
// empty message.
function causeText(cause: unknown): string {
  const inner: unknown = cause instanceof AggregateError ? cause.errors[0] : cause;
  // OpenSSL's messages contain the file and line of its source, so only the error code is shown.
  const code = systemCode(cause) ?? '';
  if (/^ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG)$/.test(code))
    return 'the server does not speak TLS (is it an http:// address?)';
  if (code.startsWith('ERR_SSL_')) return `TLS failed (${code})`;
  return printableLine(messageOf(inner) || systemCode(cause) || 'no reason given', 300);
}
