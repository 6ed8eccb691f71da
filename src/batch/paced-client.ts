import { MgwError } from '../errors.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import { startLimit } from '../http/deadline.ts';
import { retryAfter } from '../http/failures.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Pace, SendWindow } from './pace.ts';

/** A row's slot among the tasks in progress. */
export class Slot {
  readonly #pace: Pace;
  #isTaken: boolean;

  constructor(pace: Pace, isTaken = false) {
    this.#pace = pace;
    this.#isTaken = isTaken;
  }

  /** Waits for a slot, unless the row already has one. @throws the signal's reason. */
  async acquire(signal: AbortSignal): Promise<void> {
    if (this.#isTaken) return;
    await this.#pace.enter(signal);
    this.#isTaken = true;
  }

  /** Releases the row's slot, if it has one. */
  leave(): void {
    if (!this.#isTaken) return;
    this.#isTaken = false;
    this.#pace.leave();
  }
}

// Returns the delay before the next poll, in ms: at most one minute, because the wait for a job has its own deadline.
function pollDelayMs({ headers }: Pick<Reply, 'headers'>): number {
  return Math.min(retryAfter(headers) ?? 0, 60_000);
}

/**
 * Returns a row's client, which follows the run's pace. A submission waits for its slot and its window, and
 * a poll waits for the rate limiter. The client reports the gateway's refusals to the pace. `read`
 * interprets the response to a submission.
 */
export function pacedClient(
  client: GatewayClient,
  pace: Pace,
  slot: Slot,
  signal: AbortSignal,
  read: (reply: Reply) => SubmitVerdict,
): GatewayClient {
  const pacedCall = async <T extends Pick<Reply, 'status' | 'headers'>>(
    options: CallOptions,
    call: (pacedOptions: CallOptions) => Promise<T>,
    replyOf: (answer: T) => Reply,
  ): Promise<T> => {
    if (options.onConnected === undefined) {
      await pace.waitToPoll(signal);
      const reply = await call(options);
      if ([429, 503].includes(reply.status)) pace.delayPolls(pollDelayMs(reply));
      return reply;
    }
    let window = await nextWindow(pace, slot, signal, options);
    const pacedOptions: CallOptions = {
      ...options,
      onConnected: async () => {
        if (!window.isOpen()) window = await nextWindow(pace, slot, signal, options);
        await options.onConnected?.();
      },
      beforeFirstByte: () => {
        options.beforeFirstByte?.();
        if (!window.isOpen()) throw TransportError.abortedBeforeSend('its send window has passed');
      },
    };
    const reply = await call(pacedOptions);
    reportVerdict(replyOf(reply), window);
    return reply;
  };
  const reportVerdict = (reply: Reply, window: SendWindow): void => {
    const verdict = read(reply);
    if (verdict.kind === 'accepted') pace.reportAccepted();
    if (verdict.kind !== 'unavailable') return;
    // A row that waits for a retry must not occupy a slot.
    slot.leave();
    pace.reportLimited(window, verdict.failure.retryAfterMs);
  };
  return {
    ...client,
    exchange: (request, options) =>
      pacedCall(
        options,
        (pacedOptions) => client.exchange(request, pacedOptions),
        (reply) => reply,
      ),
    stream: (request, options) =>
      pacedCall(
        options,
        (pacedOptions) => client.stream(request, pacedOptions),
        ({ status, headers }) => ({ status, headers, text: '', complete: status >= 300 }),
      ),
  };
}

// Waits for the row's slot and the next window. Does not wait for a `Retry-After` that ends after the deadline. @throws
// MgwError('rate_limited') in that case and at the deadline; the signal's reason.
async function nextWindow(
  pace: Pace,
  slot: Slot,
  signal: AbortSignal,
  { deadline }: CallOptions,
): Promise<SendWindow> {
  const remainingMs = deadline?.remainingMs() ?? Infinity;
  const limit = startLimit(pace.delayMs > remainingMs ? 0 : remainingMs, [signal]);
  try {
    await slot.acquire(limit.signal);
    const window = await pace.waitToSubmit(limit.signal);
    if (deadline?.remainingMs() !== 0) return window;
  } catch (error) {
    if (!limit.hasPassed) throw error;
  } finally {
    limit.end();
  }
  if (pace.delayMs > 0) throw rateLimitedError(pace.delayMs);
  const text = "The batch's limits did not allow this row to be submitted before --timeout.";
  throw new MgwError('rate_limited', text, { retry: 'safe' });
}

/** Returns the error for a `Retry-After` of `ms` milliseconds that ends after `--timeout`. */
export function rateLimitedError(ms: number): MgwError {
  const text = `The gateway accepts no submissions for another ${Math.ceil(ms / 1000)} s. --timeout ends earlier.`;
  return new MgwError('rate_limited', text, { retry: 'safe' });
}
