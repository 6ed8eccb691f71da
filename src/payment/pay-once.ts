import type { ChargeOutcome } from '../budget/budget.ts';
import type { Clock, Deadline } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { AuthScheme, Exchange, Failure, Reply, SubmitVerdict } from '../exchange.ts';
import { backoffMs } from '../http/retry.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import { proxySettingError, TransportError } from '../http/transport-error.ts';
import type { AttemptMoney, Owner } from '../job.ts';
import type { Lease } from '../ledger/ledger.ts';
import { interruptionError, waitTooLongError, unsentError } from './errors.ts';
import { reserve, type Allowance, type Reservation, type Purchase } from './reserve.ts';

/** Dependencies of a paid call. */
export interface PayDeps {
  client: GatewayClient;
  clock: Clock;
  /** Prints a line for the user. */
  note: (text: string) => void;
  signals: Signals;
  /** Timeout of one HTTP call, in ms. The default depends on the kind of call. */
  requestTimeoutMs?: number;
  /** Maximum number of retries if a request was not sent or the gateway did not handle it. */
  retries: number;
  /** Whether a complete 5xx response proves that the request was not handled (setting `submit.retry_5xx`). */
  retry5xx?: boolean;
  /** Returns this process's lease. */
  lease: () => Promise<Lease>;
  /** Returns all budgets that limit the payment. */
  allowances: () => Promise<readonly Allowance[]>;
}

/** The two steps of an interruption: the first requests a stop, the second ends the wait for the response. */
export interface Signals {
  soft: AbortSignal;
  hard: AbortSignal;
}

/** Default timeout of one submission, in ms. */
const submitTimeoutMs = 120_000;

/** A request that costs money, and the function that interprets its response. */
export interface Payment {
  exchange: Exchange;
  purchase: Purchase;
  auth: AuthScheme;
  /** Interprets the response. Never throws. */
  read: (reply: Reply) => SubmitVerdict;
  /**
   * Makes the call and returns the part of the response that determines the verdict. Default: the whole response. For a
   * stream, whose body the caller reads later, it is only the head.
   */
  send?: (client: GatewayClient, request: Exchange, options: CallOptions) => Promise<Reply>;
  /** Nothing is sent after this deadline. It also limits the wait for the response, and the pauses between attempts. */
  deadline: Deadline;
}

/** Records the steps of a payment. Each method returns when its record is durable. */
export interface PaymentRecord {
  /**
   * Called when the connection is open and nothing has been sent. Writes everything that must be on disk before the
   * first byte is sent. If this method throws, nothing is sent.
   */
  sending?(money: AttemptMoney, owner: Owner): Promise<void>;
  /** Records the raw response before it is interpreted. */
  reply?(reply: Reply): Promise<void>;
  /** Records the outcome of the attempt. */
  verdict?(verdict: SubmitVerdict): Promise<void>;
}

/** A record that does nothing, for calls without a job. */
export const noRecord: PaymentRecord = {};

/** The result of a payment. */
export interface PaymentResult {
  verdict: SubmitVerdict;
  /** The last response; undefined if none arrived. */
  reply?: Reply;
  tries: number;
}

/**
 * The only function that spends money. Reserves the maximum cost, connects, records `sending` and sends the request.
 * Then records the raw response, interprets it, and records the outcome (design 5, 14). Retries with backoff only if
 * nothing was sent, or the gateway reports that nothing was handled. Any other outcome is final.
 * @throws MgwError: exit 2 the proxy cannot be used, 6 never sent, 12 over a budget, 130/143 interrupted before
 * anything was sent; or the errors of `record`.
 */
export async function payOnce(
  payment: Payment,
  record: PaymentRecord,
  deps: PayDeps,
): Promise<PaymentResult> {
  // Use one lease for the whole payment: a process that was declared dead in the meantime has lost its reservations and
  // claims.
  let lease: Promise<Lease> | undefined;
  const getLease = (): Promise<Lease> => (lease ??= deps.lease());
  const reservation = await reserve(payment.purchase, await deps.allowances(), getLease, deps.note);
  const progress: PaymentProgress = { reservation, getLease, hasBegun: false, outcome: 'none' };
  try {
    return await tryUntilDecided(payment, record, deps, progress);
  } finally {
    await reservation.settle(progress.outcome);
  }
}

/** The progress of a payment. */
interface PaymentProgress {
  reservation: Reservation;
  getLease: () => Promise<Lease>;
  /** Whether a byte of the current attempt may have been sent. */
  hasBegun: boolean;
  /** What is known about all attempts so far. */
  outcome: ChargeOutcome;
}

async function tryUntilDecided(
  payment: Payment,
  record: PaymentRecord,
  deps: PayDeps,
  progress: PaymentProgress,
): Promise<PaymentResult> {
  for (let tries = 1; ; tries += 1) {
    const { verdict, reply, unsent } = await attemptOnce(payment, record, deps, progress);
    const isLast = tries > deps.retries;
    if (verdict !== undefined) {
      if (verdict.kind !== 'unavailable' || isLast) return { verdict, reply, tries };
    } else if (isLast) throw unsentError(unsent.message);
    const failure = unsent ?? verdict.failure;
    const explanation = unsent === undefined ? 'the gateway did not accept it' : 'nothing was sent';
    await pause(`${failure.message}; ${explanation}`, failure, tries - 1, payment.deadline, deps);
    progress.hasBegun = false;
  }
}

type AttemptResult =
  | { verdict: SubmitVerdict; reply?: Reply; unsent?: undefined }
  | { verdict?: undefined; reply?: undefined; unsent: Failure };

async function attemptOnce(
  payment: Payment,
  record: PaymentRecord,
  deps: PayDeps,
  progress: PaymentProgress,
): Promise<AttemptResult> {
  let reply: Reply;
  try {
    reply = await exchange(payment, record, deps, progress);
  } catch (error) {
    if (error instanceof TransportError && error.reason === 'aborted_before_send') {
      // No byte was sent, so the attempt is recorded as unsent even if another process considers this one dead.
      const isRecorded = progress.outcome === 'open';
      progress.outcome = 'none';
      progress.hasBegun = false;
      const failure = { code: 'unreachable', message: error.message } as const;
      if (isRecorded) await record.verdict?.({ kind: 'unavailable', failure });
    }
    const unsent = failureBeforeSending(error, progress.hasBegun, payment, deps);
    if (unsent !== undefined) return { unsent };
    const verdict = {
      kind: 'unknown',
      failure: { code: 'submit_unknown', message: messageOf(error) },
    } as const;
    await record.verdict?.(verdict);
    return { verdict };
  }
  await record.reply?.(reply);
  const verdict = adjustVerdict(payment.read(reply), reply, deps.retry5xx ?? false);
  progress.outcome = outcomeAfter(verdict);
  await record.verdict?.(verdict);
  return { verdict, reply };
}

function outcomeAfter({ kind }: SubmitVerdict): ChargeOutcome {
  return kind === 'accepted' ? 'accepted' : kind === 'unknown' ? 'open' : 'none';
}

async function exchange(
  { exchange: request, auth, send, purchase, deadline }: Payment,
  record: PaymentRecord,
  { client, signals, note, requestTimeoutMs = submitTimeoutMs }: PayDeps,
  progress: PaymentProgress,
): Promise<Reply> {
  const onInterrupt = (): void => {
    if (progress.hasBegun && signals.hard !== signals.soft)
      note(
        `Interrupted. Waiting for the response to ${purchase.name}, which may be charged. Interrupt again to give up.`,
      );
  };
  assertTimeLeft(deadline);
  signals.soft.addEventListener('abort', onInterrupt);
  let lease: Lease | undefined;
  const options: CallOptions = {
    auth,
    timeoutMs: requestTimeoutMs,
    deadline,
    maxBytes: 1024 * 1024,
    signal: signals.hard,
    connectSignal: signals.soft,
    onConnected: async () => {
      signals.soft.throwIfAborted();
      // From here on, the outcome is unknown until the response is read.
      progress.outcome = 'open';
      try {
        const { money } = progress.reservation;
        // The lease is needed only for a record or a reservation.
        if (record.sending !== undefined || money.reservation !== undefined) {
          lease = await progress.getLease();
          await record.sending?.(money, lease.owner);
        }
      } catch (error) {
        progress.outcome = 'none';
        throw error;
      }
      progress.hasBegun = true;
    },
    beforeFirstByte: () => {
      // Check again, because writing the record may have taken a long time.
      if (signals.soft.aborted) throw TransportError.abortedBeforeSend('interrupted before the first byte');
      assertTimeLeft(deadline);
      try {
        lease?.assertLease();
      } catch (error) {
        // Report that nothing was sent. If the lease was lost and not merely renewed late, the ledger refuses the next
        // attempt.
        throw TransportError.abortedBeforeSend(messageOf(error));
      }
    },
  };
  try {
    return await (send?.(client, request, options) ?? client.exchange(request, options));
  } finally {
    signals.soft.removeEventListener('abort', onInterrupt);
  }
}

// Throws TransportError if the deadline has passed, so that nothing is sent.
function assertTimeLeft(deadline: Deadline): void {
  if (deadline.remainingMs() === 0) throw TransportError.abortedBeforeSend('the deadline passed');
}

// Returns undefined if any byte may have been sent.
function failureBeforeSending(
  error: unknown,
  hasBegun: boolean,
  { deadline }: Payment,
  { signals }: PayDeps,
): Failure | undefined {
  const isTransport = error instanceof TransportError;
  if (hasBegun || (isTransport && error.phase === 'sent')) return undefined;
  if (signals.soft.aborted) throw interruptionError(signals.soft, 'no');
  if (!isTransport) throw error;
  if (error.isPermanent || deadline.remainingMs() === 0)
    throw proxySettingError(error) ?? unsentError(error.message, error);
  return { code: 'unreachable', message: error.message };
}

// `submit.retry_5xx` is for gateways that are known to create nothing if they respond with 5xx (design 5). The code
// `rate_limited` is for calls that may be sent again, so a definite rejection because of a limit gets a different code.
function adjustVerdict(verdict: SubmitVerdict, reply: Reply, retry5xx: boolean): SubmitVerdict {
  if (verdict.kind === 'rejected' && verdict.failure.code === 'rate_limited')
    return { ...verdict, failure: { ...verdict.failure, code: 'invalid_request' } };
  const canRetry = retry5xx && verdict.kind === 'unknown' && verdict.handle === undefined;
  return canRetry && reply.complete && reply.status >= 500
    ? { kind: 'unavailable', failure: verdict.failure }
    : verdict;
}

async function pause(
  reason: string,
  failure: Failure,
  tries: number,
  deadline: Deadline,
  { clock, note, signals }: PayDeps,
): Promise<void> {
  const ms = backoffMs(tries, { floorMs: failure.retryAfterMs });
  if (ms > deadline.remainingMs()) throw waitTooLongError(reason, failure.code, clock.now() + ms);
  note(`${reason}; trying again in ${(ms / 1000).toFixed(1)} s.`);
  await clock.sleep(ms, signals.soft).catch(() => {
    throw interruptionError(signals.soft, 'no');
  });
}
