import type { Clock } from '../clock.ts';

/** How closely a batch may follow on itself. */
export interface PaceOptions {
  /** Tasks that may be under way at the gateway at most. */
  concurrency: number;
  /** Submissions a minute at most; no limit where absent. */
  perMinute?: number;
  /** The least pause between two polls of one job, ms. */
  intervalMs: number;
  clock: Pick<Clock, 'monotonic' | 'sleep'>;
  /** Told when the number of tasks that may be under way changes. */
  onLimit?: (limit: number) => void;
}

// So many jobs are polled in the time after which one of them is polled again.
const pollsPerInterval = 100;

/**
 * How many tasks of a run are under way, and when its next call may go out. The gateway's 429 halves the number of tasks,
 * its acceptances let it grow again, one by one; its `Retry-After` holds every submission.
 */
export class Pace {
  readonly #options: PaceOptions;
  #limit: number;
  #underWay = 0;
  #waiting: (() => void)[] = [];
  /** Acceptances since the limit changed. */
  #accepted = 0;
  /** Counts the changes downwards: a 429 to what was sent before the last one says nothing new. */
  #epoch = 0;
  readonly #submissions: Gate;
  readonly #polls: Gate;

  constructor(options: PaceOptions) {
    const { concurrency, perMinute, intervalMs, clock } = options;
    this.#options = options;
    this.#limit = concurrency;
    this.#submissions = new Gate(perMinute === undefined ? 0 : 60_000 / perMinute, clock);
    this.#polls = new Gate(intervalMs / pollsPerInterval, clock);
  }

  /** Tasks that may be under way now. */
  get limit(): number {
    return this.#limit;
  }

  /** How long submissions are held by the gateway's wish, ms. */
  get heldMs(): number {
    return this.#submissions.heldMs;
  }

  /** Waits until one more task may be under way. @throws the signal's reason. */
  async enter(signal: AbortSignal): Promise<void> {
    while (this.#underWay >= this.#limit) await this.#change(signal);
    signal.throwIfAborted();
    this.#underWay += 1;
  }

  /** A task is no longer under way. */
  leave(): void {
    this.#underWay -= 1;
    this.#wake();
  }

  /** Waits until the next submission may go out, and gives what {@link limited} wants to know. @throws the signal's reason. */
  async submission(signal: AbortSignal): Promise<number> {
    await this.#submissions.pass(signal);
    return this.#epoch;
  }

  /** Waits until the next poll may go out. @throws the signal's reason. */
  poll(signal: AbortSignal): Promise<void> {
    return this.#polls.pass(signal);
  }

  /** The gateway accepted a task. */
  accepted(): void {
    this.#accepted += 1;
    if (this.#limit >= this.#options.concurrency || this.#accepted < this.#limit) return;
    this.#set(this.#limit + 1);
  }

  /** The gateway takes no more for now: 429, or its own 503. `epoch` is of the submission that it answered. */
  limited(epoch: number, retryAfterMs = 0): void {
    this.#submissions.hold(retryAfterMs);
    if (epoch !== this.#epoch) return;
    this.#epoch += 1;
    this.#set(Math.max(1, Math.floor(Math.min(this.#limit, this.#underWay) / 2)));
  }

  /** The gateway wants to be asked less often. A minute at most: the wait of a job has an end of its own. */
  holdPolls(retryAfterMs = 0): void {
    this.#polls.hold(Math.min(retryAfterMs, 60_000));
  }

  #set(limit: number): void {
    this.#accepted = 0;
    if (limit === this.#limit) return;
    this.#limit = limit;
    this.#options.onLimit?.(limit);
    this.#wake();
  }

  #change(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const aborted = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', aborted, { once: true });
      this.#waiting.push(() => {
        signal.removeEventListener('abort', aborted);
        resolve();
      });
    });
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** A gate that calls pass one by one, no closer than a pause, and not while it is held. */
class Gate {
  readonly #gapMs: number;
  readonly #clock: PaceOptions['clock'];
  /** Both in monotonic ms. */
  #next = 0;
  #heldUntil = 0;

  constructor(gapMs: number, clock: PaceOptions['clock']) {
    this.#gapMs = gapMs;
    this.#clock = clock;
  }

  get heldMs(): number {
    return Math.max(0, this.#heldUntil - this.#clock.monotonic());
  }

  hold(ms: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, this.#clock.monotonic() + ms);
  }

  async pass(signal: AbortSignal): Promise<void> {
    for (;;) {
      while (this.heldMs > 0) await this.#clock.sleep(this.heldMs, signal);
      const turn = Math.max(this.#next, this.#clock.monotonic());
      this.#next = turn + this.#gapMs;
      const wait = turn - this.#clock.monotonic();
      // A timer is no finer than a millisecond.
      if (wait >= 1) await this.#clock.sleep(wait, signal);
      if (this.heldMs === 0) return;
    }
  }
}
