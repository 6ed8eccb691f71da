import type { Clock } from '../../clock.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import { isKeyRefused } from '../row-state.ts';

/** Measures how long a worker has had nothing to do, and pauses its batches. */
export class IdleTime {
  readonly #clock: Clock;
  readonly #maxMs: number;
  /** Batches that cannot continue until, for example, the budget is raised. Their retries count as idle time. */
  readonly #stuckBatches = new Set<string>();
  /** The time until which to skip each batch, in monotonic ms. */
  readonly #pausedUntil = new Map<string, number>();
  #sinceMs: number;

  /** Starts with no idle time. `maxMs` is the idle time in ms after which {@link isOver} is true. */
  constructor(clock: Clock, maxMs = Infinity) {
    this.#clock = clock;
    this.#maxMs = maxMs;
    this.#sinceMs = clock.monotonic();
  }

  /** Whether the worker has been idle for too long. It is busy while any of the `active` batches is not stuck. */
  isOver(active: Iterable<string>): boolean {
    for (const batch of active) this.postpone(0, batch);
    return this.#clock.monotonic() - this.#sinceMs >= this.#maxMs;
  }

  /** Delays the start of idle time to `ms` from now or later. Has no effect if `batch` is stuck. */
  postpone(ms: number, batch?: string): void {
    if (batch === undefined || !this.#stuckBatches.has(batch))
      this.#sinceMs = Math.max(this.#sinceMs, this.#clock.monotonic() + ms);
  }

  /** Records that a batch cannot continue, or that it can continue again. */
  setStuck(batch: string, isStuck: boolean): void {
    if (isStuck) this.#stuckBatches.add(batch);
    else this.#stuckBatches.delete(batch);
  }

  /** Pauses a batch for `ms`. The pause is idle time if the batch is stuck. */
  pause(batch: string, ms: number, isStuck: boolean): void {
    this.#pausedUntil.set(batch, this.#clock.monotonic() + ms);
    if (isStuck) this.setStuck(batch, true);
    else this.postpone(ms);
  }

  /** Whether a batch is paused. */
  isPaused(batch: string): boolean {
    return (this.#pausedUntil.get(batch) ?? 0) > this.#clock.monotonic();
  }
}

/** Limits the rows that a worker has in progress, for all batches together. */
export class RowLimit {
  #free: number;
  /** Wakes batches that wait until this worker has fewer rows in progress. */
  readonly #waiting: (() => void)[] = [];

  constructor(max: number) {
    this.#free = max;
  }

  /** The number of rows that the worker may still claim. */
  get free(): number {
    return this.#free;
  }

  claim(count: number): void {
    this.#free -= count;
  }

  release(count: number): void {
    this.#free += count;
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Waits until rows are released. */
  nextRelease(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** The pause before retrying a row or batch that first needs a change, such as a higher budget, in ms. */
export const stuckRetryMs = 60_000;
/** The usual pause before retrying a row, in ms. */
export const defaultRetryMs = 15_000;

/**
 * Returns the pause before a row that failed is retried, in ms; undefined if the error ends the row. A local error on
 * one machine, or a refusal by its store, never ends a row. The gateway may have accepted the row, and another worker
 * can save its result.
 */
export function retryDelayMs(error: MgwError): number | undefined {
  switch (error.exitCode) {
    case exitCodes.interrupted:
    case exitCodes.terminated:
      return 0;
    case exitCodes.unavailable:
    case exitCodes.pending:
      return defaultRetryMs;
    case exitCodes.budget:
      return stuckRetryMs;
    case exitCodes.auth:
      if (error.charged === 'yes') return stuckRetryMs;
      return isKeyRefused(error) ? defaultRetryMs : undefined;
    default:
      if (error.code === 'output_exists' || error.isOfInput) return stuckRetryMs;
      return ['balance', 'local_io', 'store'].includes(error.code) ? defaultRetryMs : undefined;
  }
}
