import type { Reply, SubmitVerdict } from '../exchange.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import { retryAfter } from '../http/retry-after.ts';
import type { Pace } from './pace.ts';

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
  const turn = async (options: CallOptions): Promise<number | undefined> => {
    if (options.onConnected === undefined) {
      await pace.poll(signal);
      return undefined;
    }
    await seat.take(signal);
    return pace.submission(signal);
  };
  const saw = (reply: Reply, epoch: number | undefined): void => {
    if (epoch === undefined) {
      if (isLimit(reply.status)) pace.holdPolls(retryAfter(reply.headers));
      return;
    }
    const verdict = read(reply);
    if (verdict.kind === 'accepted') pace.accepted();
    if (verdict.kind !== 'unavailable') return;
    // Whoever waits for the next try takes nobody's place meanwhile.
    seat.leave();
    pace.limited(epoch, verdict.failure.retryAfterMs);
  };
  return {
    ...client,
    exchange: async (request, options) => {
      const epoch = await turn(options);
      const reply = await client.exchange(request, options);
      saw(reply, epoch);
      return reply;
    },
    stream: async (request, options) => {
      const epoch = await turn(options);
      const answer = await client.stream(request, options);
      const { status, headers } = answer;
      saw({ status, headers, text: '', complete: status >= 300 }, epoch);
      return answer;
    },
  };
}

function isLimit(status: number): boolean {
  return status === 429 || status === 503;
}
