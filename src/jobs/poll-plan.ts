/** How likely a task ends in each of many equal steps from a time on; need not add up to one. */
export interface Likelihood {
  startMs: number;
  stepMs: number;
  of: Float64Array;
}

/** Steps in an interval: how finely polls are placed. */
export const stepsPerInterval = 20;

/** What a poll costs next to lateness, intervals: where an end is unlikely, polls are as far apart as they may be. */
const pollCost = 0.01;

/**
 * When to poll so that a task's end is noticed early: each pause is between the interval and twice that, and among all
 * schedules that keep to this it is the one with the least lateness to be expected.
 */
export class PollPlan {
  readonly #startMs: number;
  readonly #stepMs: number;
  readonly #intervalMs: number;
  /** The best pause after a poll in each step, in steps. */
  readonly #pauses: Uint8Array;

  constructor({ startMs, stepMs, of }: Likelihood, intervalMs: number) {
    this.#startMs = startMs;
    this.#stepMs = stepMs;
    this.#intervalMs = intervalMs;
    this.#pauses = bestPauses(of, Math.ceil(intervalMs / stepMs));
  }

  /** The pause after a poll at a time, ms: long before the likely, and undefined after it. */
  pauseMs(atMs: number): number | undefined {
    const step = Math.ceil((atMs - this.#startMs) / this.#stepMs);
    if (step < 0) return 2 * this.#intervalMs;
    const pause = this.#pauses[step];
    if (pause === undefined) return undefined;
    const ms = this.#startMs + (step + pause) * this.#stepMs - atMs;
    return Math.min(2 * this.#intervalMs, Math.max(this.#intervalMs, ms));
  }
}

// From the last step backwards: what a pause costs is the lateness of the ends within it, and the best that follows.
function bestPauses(likelihood: Float64Array, least: number): Uint8Array {
  const count = likelihood.length;
  const most = 2 * least;
  // Sums over all steps before one: of what is likely, and of its times.
  const sum = new Float64Array(count + most + 1);
  const times = new Float64Array(count + most + 1);
  for (let at = 0; at < sum.length - 1; at += 1) {
    const likely = likelihood[at] ?? 0;
    sum[at + 1] = (sum[at] ?? 0) + likely;
    times[at + 1] = (times[at] ?? 0) + likely * (at + 0.5);
  }
  const all = sum[count] ?? 0;
  const costs = new Float64Array(count + most + 1);
  const pauses = new Uint8Array(count);
  for (let at = count - 1; at >= 0; at -= 1) {
    let best = Infinity;
    for (let pause = least; pause <= most; pause += 1) {
      const next = at + pause;
      const ended = (sum[next] ?? 0) - (sum[at] ?? 0);
      const late = next * ended - ((times[next] ?? 0) - (times[at] ?? 0));
      const left = all - (sum[at] ?? 0);
      const cost = late + pollCost * least * left + (costs[next] ?? 0);
      if (cost < best) [best, pauses[at]] = [cost, pause];
    }
    costs[at] = best;
  }
  return pauses;
}
