import type { Clock, Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { readFailure } from './failures.ts';
import { proxySettingError, TransportError } from './transport-error.ts';

/** Options of {@link readWithRetries}. */
export interface RetryOptions {
  clock: Clock;
  retries: number;
  /** The number of retries if no connection can be made (default: `retries`). */
  unsentRetries?: number;
  /** The time after which no attempt starts. */
  deadline?: Deadline | undefined;
  note: (text: string) => void;
  signal?: AbortSignal;
  /** Whether to retry after a response with a status other than 429 and 5xx (default: never). */
  isFailure?: (reply: Reply) => boolean;
}

/**
 * Repeats a read (never a submission) with exponential backoff while the response is 429 or 5xx, is incomplete, or does
 * not arrive (specification 7). Returns the last response of any status.
 * @throws MgwError('unreachable') if the last attempt got no response; MgwError('config') if the proxy cannot be used;
 * the signal's reason if it is aborted.
 */
export async function readWithRetries(call: () => Promise<Reply>, options: RetryOptions): Promise<Reply> {
  for (let tries = 0; ; tries += 1) {
    const { reply, problem, floorMs, isPermanent, cause } = await attempt(call, options);
    options.signal?.throwIfAborted();
    const { retries, unsentRetries = retries } = options;
    const ms = backoffMs(tries, { floorMs });
    const isLate = ms >= (options.deadline?.remainingMs() ?? Infinity);
    const isLast =
      isPermanent === true || isLate || tries >= (cause?.phase === 'unsent' ? unsentRetries : retries);
    if (reply !== undefined && (problem === undefined || isLast)) return reply;
    if (isLast)
      throw (
        proxySettingError(cause) ??
        new MgwError('unreachable', problem ?? 'no response', { retry: 'safe', cause })
      );
    options.note(`${problem ?? 'no response'}; trying again in ${(ms / 1000).toFixed(1)} s.`);
    await options.clock.sleep(ms, options.signal);
  }
}

interface Attempt {
  reply?: Reply;
  problem?: string;
  floorMs?: number;
  isPermanent?: boolean;
  cause?: TransportError;
}

async function attempt(call: () => Promise<Reply>, { isFailure }: RetryOptions): Promise<Attempt> {
  try {
    const reply = await call();
    if (reply.status !== 429 && reply.status < 500 && isFailure?.(reply) !== true)
      return { reply, problem: reply.complete ? undefined : 'the response was truncated' };
    const { message, retryAfterMs, code } = readFailure(reply);
    const isPermanent = code === 'balance' || code === 'not_found' || (retryAfterMs ?? 0) > 300_000;
    return { reply, problem: message, floorMs: retryAfterMs, isPermanent };
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    return { problem: error.message, isPermanent: error.isPermanent, cause: error };
  }
}

/**
 * Returns the delay before the next attempt, in ms. It doubles from `baseMs` up to `capMs`, with 25% jitter, and is
 * never less than `floorMs`, the delay that the gateway requested.
 */
export function backoffMs(
  tries: number,
  options: { baseMs?: number; capMs?: number; floorMs?: number; random?: () => number } = {},
): number {
  const { baseMs = 500, capMs = 30_000, floorMs = 0, random = Math.random } = options;
  const delayMs = Math.min(capMs, baseMs * 2 ** Math.min(tries, 30));
  return Math.max(floorMs, delayMs * (0.75 + random() / 2));
}

/**
 * Returns the pause before the next poll, in ms. The pause grows with the number of earlier polls, from `intervalMs` to
 * twice `intervalMs`, with jitter within this range (default: 5 to 10 s, specification 8).
 */
export function pollPauseMs(polls: number, intervalMs: number, random: () => number = Math.random): number {
  const factor = Math.min(2, 1.15 ** polls);
  return intervalMs * (1 + (factor - 1) * (0.5 + random() / 2));
}
