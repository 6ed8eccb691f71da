import type { Reply, SubmitVerdict } from '../exchange.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import { retryAfter } from '../http/retry-after.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Pace, Turn } from './pace.ts';

/** A row's place among the tasks that are under way. */
export class Seat {
  readonly #pace: Pace;
  #isTaken = false;

  constructor(pace: Pace) {
    this.#pace = pace;
  }

  /** Waits for the place, where it is not held already. @throws the signal's reason. */
  async take(signal: AbortSignal): Promise<void> {
    if (this.#isTaken) return;
    await this.#pace.enter(signal);
    this.#isTaken = true;
  }

  /** Gives the place up, where it is held. */
  leave(): void {
    if (!this.#isTaken) return;
    this.#isTaken = false;
    this.#pace.leave();
  }
}

/**
 * The client of one row, which keeps to the pace of the run: what costs money waits for its place and its turn, a poll
 * for its turn, and what the gateway says of its limits is told to the pace. `read` tells what became of a submission.
 */
export function pacedClient(
  client: GatewayClient,
  pace: Pace,
  seat: Seat,
  signal: AbortSignal,
  read: (reply: Reply) => SubmitVerdict,
): GatewayClient {
  const paced = async <T extends Pick<Reply, 'status' | 'headers'>>(
    options: CallOptions,
    call: (own: CallOptions) => Promise<T>,
    replyOf: (answer: T) => Reply,
  ): Promise<T> => {
    if (options.onConnected === undefined) {
      await pace.poll(signal);
      const answer = await call(options);
      if (isLimit(answer.status)) pace.holdPolls(retryAfter(answer.headers));
      return answer;
    }
    await seat.take(signal);
    let turn = await pace.submission(signal);
    const own: CallOptions = {
      ...options,
      onConnected: async () => {
        if (!turn.isGood()) turn = await pace.submission(signal);
        await options.onConnected?.();
      },
      beforeFirstByte: () => {
        options.beforeFirstByte?.();
        if (!turn.isGood()) throw TransportError.heldBack('its turn had passed when it could be sent');
      },
    };
    const answer = await call(own);
    saw(replyOf(answer), turn);
    return answer;
  };
  const saw = (reply: Reply, turn: Turn): void => {
    const verdict = read(reply);
    if (verdict.kind === 'accepted') pace.accepted();
    if (verdict.kind !== 'unavailable') return;
    // Whoever waits for the next try takes nobody's place meanwhile.
    seat.leave();
    pace.limited(turn, verdict.failure.retryAfterMs);
  };
  return {
    ...client,
    exchange: (request, options) =>
      paced(
        options,
        (own) => client.exchange(request, own),
        (reply) => reply,
      ),
    stream: (request, options) =>
      paced(
        options,
        (own) => client.stream(request, own),
        ({ status, headers }) => ({ status, headers, text: '', complete: status >= 300 }),
      ),
  };
}

function isLimit(status: number): boolean {
  return status === 429 || status === 503;
}
