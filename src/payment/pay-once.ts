import type { Clock, Deadline } from '../clock.ts';
import { messageOf, MgwError, type Charged, type ErrorCode } from '../errors.ts';
import type { AuthScheme, Exchange, Failure, Reply, SubmitVerdict } from '../exchange.ts';
import { asSentence } from '../http/advice.ts';
import { backoffMs } from '../http/backoff.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import { TransportError } from '../http/transport-error.ts';

/** What a paid call works with, whatever it is that is paid for. */
export interface PayDeps {
  client: GatewayClient;
  clock: Clock;
  /** A line for the person at the terminal. */
  note: (text: string) => void;
  signals: Signals;
  /** One HTTP call, ms; undefined takes the default of the kind of call. */
  requestTimeoutMs?: number;
  /** How often an unavailable or unsent request is tried again. */
  retries: number;
  /** Takes a complete 5xx as proof that nothing was handled (the setting `submit.retry_5xx`). */
  retry5xx?: boolean;
}

/** The two steps of an interruption: the first asks to stop, the second gives up what is outstanding. */
export interface Signals {
  soft: AbortSignal;
  hard: AbortSignal;
}

/** How long one submission may take where nothing else was asked, ms. */
const submitTimeoutMs = 120_000;

/** A request that costs money, and how its answer is read. */
export interface Payment {
  exchange: Exchange;
  auth: AuthScheme;
  /** Reads the answer; never throws. */
  read: (reply: Reply) => SubmitVerdict;
  /**
   * Makes the call and gives the answer as far as it proves something: the whole exchange where this is absent,
   * or the head alone where the answer is a stream that the caller goes on to read.
   */
  send?: (client: GatewayClient, request: Exchange, options: CallOptions) => Promise<Reply>;
  /** Bounds the tries and their pauses. */
  deadline: Deadline;
}

/** Where the steps of a payment are recorded; each method returns when its record is durable. */
export interface PaymentRecord {
  /**
   * The connection stands and nothing was sent: whatever must be on disk before the first byte. What it throws ends
   * the payment, with nothing sent.
   */
  sending(): Promise<void>;
  /** The answer as it came, before it is read. */
  reply?(reply: Reply): Promise<void>;
  /** What became of the attempt. */
  verdict?(verdict: SubmitVerdict): Promise<void>;
}

/** For what leaves no job behind: nothing is recorded. */
export const unrecorded: PaymentRecord = { sending: () => Promise.resolve() };

/** What became of a payment. */
export interface Paid {
  verdict: SubmitVerdict;
  /** The last answer, undefined where none came. */
  reply?: Reply;
  tries: number;
}

/**
 * The one way in which mgw spends money: connect, record `sending`, first byte, record the answer raw, read it, record
 * what it proves (design 5). It is tried again, with backoff, only where nothing was sent or the gateway itself says
 * that nothing was handled; every other outcome is the verdict.
 * @throws MgwError: exit 6 never sent, 130/143 interrupted before anything was sent; whatever the record throws.
 */
export async function payOnce(payment: Payment, record: PaymentRecord, deps: PayDeps): Promise<Paid> {
  for (let tries = 1; ; tries += 1) {
    const { verdict, reply, unsent } = await attemptOnce(payment, record, deps);
    if (verdict !== undefined && (verdict.kind !== 'unavailable' || tries > deps.retries))
      return { verdict, reply, tries };
    if (unsent !== undefined && tries > deps.retries) throw unsentError(unsent.message);
    const failure = unsent ?? verdict.failure;
    const what = unsent === undefined ? 'the gateway did not take it' : 'nothing was sent';
    await pause(`${failure.message}; ${what}`, failure, tries - 1, payment.deadline, deps);
  }
}

type Attempt =
  | { verdict: SubmitVerdict; reply?: Reply; unsent?: undefined }
  | { verdict?: undefined; reply?: undefined; unsent: Failure };

async function attemptOnce(payment: Payment, record: PaymentRecord, deps: PayDeps): Promise<Attempt> {
  const sent = { begun: false };
  let reply: Reply;
  try {
    reply = await exchange(payment, record, deps, sent);
  } catch (error) {
    const unsent = failureBeforeSending(error, sent.begun, deps);
    if (unsent !== undefined) return { unsent };
    const verdict = {
      kind: 'unknown',
      failure: { code: 'submit_unknown', message: messageOf(error) },
    } as const;
    await record.verdict?.(verdict);
    return { verdict };
  }
  await record.reply?.(reply);
  const verdict = judged(payment.read(reply), reply, deps.retry5xx ?? false);
  await record.verdict?.(verdict);
  return { verdict, reply };
}

async function exchange(
  { exchange: request, auth, send }: Payment,
  record: PaymentRecord,
  { client, signals, note, requestTimeoutMs = submitTimeoutMs }: PayDeps,
  sent: { begun: boolean },
): Promise<Reply> {
  const interrupted = (): void => {
    if (sent.begun && signals.hard !== signals.soft)
      note(
        'Interrupted; the answer to what was sent is awaited, since it may be charged. Again gives it up.',
      );
  };
  signals.soft.addEventListener('abort', interrupted, { once: true });
  const options: CallOptions = {
    auth,
    timeoutMs: requestTimeoutMs,
    maxBytes: 1024 * 1024,
    signal: signals.hard,
    connectSignal: signals.soft,
    onConnected: async () => {
      signals.soft.throwIfAborted();
      await record.sending();
      sent.begun = true;
    },
  };
  try {
    return await (send?.(client, request, options) ?? client.exchange(request, options));
  } finally {
    signals.soft.removeEventListener('abort', interrupted);
  }
}

// Undefined where a byte may have left.
function failureBeforeSending(error: unknown, begun: boolean, { signals }: PayDeps): Failure | undefined {
  const isTransport = error instanceof TransportError;
  if (begun || (isTransport && error.phase === 'sent')) return undefined;
  if (signals.soft.aborted) throw interrupted(signals.soft, 'no');
  if (!isTransport) throw error;
  if (error.reason === 'certificate' || error.reason === 'private_address')
    throw unsentError(error.message, error);
  return { code: 'unreachable', message: error.message };
}

// `submit.retry_5xx` is for those who know that their gateway creates nothing when it answers 5xx (design 5).
function judged(verdict: SubmitVerdict, reply: Reply, retry5xx: boolean): SubmitVerdict {
  const isTaken = retry5xx && verdict.kind === 'unknown' && verdict.handle === undefined;
  return isTaken && reply.complete && reply.status >= 500
    ? { kind: 'unavailable', failure: verdict.failure }
    : verdict;
}

async function pause(
  why: string,
  failure: Failure,
  tries: number,
  deadline: Deadline,
  { clock, note, signals }: PayDeps,
): Promise<void> {
  const ms = backoffMs(tries, { floorMs: failure.retryAfterMs });
  if (ms > deadline.leftMs()) throw tooLong(why, failure.code, clock.now() + ms);
  note(`${why}; trying again in ${(ms / 1000).toFixed(1)} s.`);
  await clock.sleep(ms, signals.soft).catch(() => {
    throw interrupted(signals.soft, 'no');
  });
}

/** Exit 130 or 143: what was begun was not ended. */
export function interrupted(
  signal: AbortSignal,
  charged: Charged,
  text = 'Interrupted before anything was sent.',
): MgwError {
  return new MgwError('pending', text, {
    exit: signal.reason === 'SIGTERM' ? 'terminated' : 'interrupted',
    charged,
    retry: charged === 'no' ? 'safe' : 'resume',
  });
}

/** The error of a payment that was not accepted: exit 3, 4, 6 or 7. */
export function notAccepted(
  { kind, failure }: Exclude<SubmitVerdict, { kind: 'accepted' }>,
  tries: number,
): MgwError {
  const { code, message, requestId } = failure;
  if (kind === 'rejected')
    return new MgwError(code, message, { exit: code === 'auth' ? 'auth' : 'rejected', requestId });
  if (kind === 'unknown') {
    const text = `${asSentence(message)} The gateway may have handled it and charged for it; it is not sent again.`;
    return new MgwError('submit_unknown', text, { charged: 'maybe', retry: 'never', requestId });
  }
  const text = `Not accepted after ${tries} ${tries === 1 ? 'try' : 'tries'}: ${message}`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe', requestId });
}

// Exit 6: no connection was made, so nothing was sent.
function unsentError(message: string, cause?: unknown): MgwError {
  return new MgwError('unreachable', `Nothing was sent: ${asSentence(message)}`, { retry: 'safe', cause });
}

// Exit 6: the next try would come after the wait has ended; says when it would be. `at` in ms since 1970.
function tooLong(why: string, code: ErrorCode, at: number): MgwError {
  const when = new Date(Math.min(at, 8.64e15)).toISOString();
  const text = `${why}; the next try would be at ${when}, after the wait ends.`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe' });
}
