import type { Clock } from '../clock.ts';

/** A batch's limits. */
export interface PaceOptions {
  /** The maximum number of tasks in progress at the gateway. */
  concurrency: number;
  /** The maximum number of submissions per minute; absent for no limit. */
  perMinute?: number;
  /** The minimum pause between two polls of one job, in ms. */
  intervalMs: number;
  clock: Pick<Clock, 'monotonic' | 'sleep'>;
  /** Called when the limit on tasks in progress changes. */
  onLimit?: (limit: number) => void;
}

/** A time window in which a submission may be sent. */
export interface SendWindow {
  /** The number of times the limit had been lowered before this window. */
  epoch: number;
  /** Whether the submission may still be sent. A late submission could reach the gateway together with later ones. */
  isOpen(): boolean;
}

/** How long a window is open, in ms: enough to connect and to record the submission before its first byte is sent. */
const maxDelayMs = 2000;

/**
 * Returns the pause between two windows, in ms. This pause allows at most `perMinute` submissions in any minute,
 * regardless of when in its window each submission is sent.
 */
export function gapOf(perMinute: number | undefined): number {
  return perMinute === undefined ? 0 : (60_000 + maxDelayMs) / perMinute;
}

/** Returns the window that opens at `at`, in monotonic ms. */
export function sendWindowAt(at: number, epoch: number, { perMinute, clock }: PaceOptions): SendWindow {
  return { epoch, isOpen: () => perMinute === undefined || clock.monotonic() <= at + maxDelayMs };
}

/**
 * Limits a batch's tasks in progress, and the rate of its calls. A 429 halves the limit. Accepted submissions then
 * raise it again, one task at a time. `Retry-After` delays every submission.
 */
export interface Pace {
  /** The current maximum number of tasks in progress. */
  readonly limit: number;
  /** Whether other processes share this pace because they run the same batch. */
  readonly isShared: boolean;
  /** How much longer the gateway's `Retry-After` delays submissions, in ms. */
  readonly delayMs: number;
  /**
   * Waits until another task may start. Takes up to `max` slots (default 1), and returns the number of slots taken.
   * @throws the signal's reason.
   */
  enter(signal: AbortSignal, max?: number): Promise<number>;
  /** Reports that a task is no longer in progress. */
  leave(): void;
  /** Waits until the next submission may be sent. @throws the signal's reason. */
  waitToSubmit(signal: AbortSignal): Promise<SendWindow>;
  /** Waits until the next poll may be sent. @throws the signal's reason. */
  waitToPoll(signal: AbortSignal): Promise<unknown>;
  /** Reports that the gateway accepted a task. */
  reportAccepted(): void;
  /**
   * Reports that the gateway currently accepts no more tasks (429, or a 503 from the gateway itself). `window` is the
   * refused submission's window.
   */
  reportLimited(window: SendWindow, retryAfterMs?: number): void;
  /** Delays this process's polls. */
  delayPolls(ms: number): void;
  /** Releases all slots. */
  close(): Promise<void>;
}

// The maximum number of polls, for all jobs together, during the poll interval of one job.
const pollsPerInterval = 100;

/** Returns the rate limiter for a process's polls. */
export function pollLimiter({ intervalMs, clock }: Pick<PaceOptions, 'intervalMs' | 'clock'>): RateLimiter {
  return new RateLimiter(intervalMs / pollsPerInterval, clock);
}

/** The pace of a batch that only one process runs. */
export class LocalPace implements Pace {
  readonly isShared = false;
  readonly #options: PaceOptions;
  #limit: number;
  #inProgress = 0;
  #waiting: (() => void)[] = [];
  /** The number of tasks accepted since the limit last changed. */
  #accepted = 0;
  /**
   * The number of times the limit was lowered. A 429 for a submission sent before the last
   * reduction does not lower it again.
   */
  #epoch = 0;
  readonly #submissions: RateLimiter;
  readonly #polls: RateLimiter;

  constructor(options: PaceOptions) {
    const { concurrency, perMinute, clock } = options;
    this.#options = options;
    this.#limit = concurrency;
    this.#submissions = new RateLimiter(gapOf(perMinute), clock);
    this.#polls = pollLimiter(options);
  }

  get limit(): number {
    return this.#limit;
  }

  get delayMs(): number {
    return this.#submissions.delayMs;
  }

  async enter(signal: AbortSignal, max = 1): Promise<number> {
    while (this.#inProgress >= this.#limit) await this.#limitChange(signal);
    signal.throwIfAborted();
    const count = Math.min(max, this.#limit - this.#inProgress);
    this.#inProgress += count;
    return count;
  }

  leave(): void {
    this.#inProgress -= 1;
    this.#wake();
  }

  async waitToSubmit(signal: AbortSignal): Promise<SendWindow> {
    const at = await this.#submissions.pass(signal);
    return sendWindowAt(at, this.#epoch, this.#options);
  }

  waitToPoll(signal: AbortSignal): Promise<unknown> {
    return this.#polls.pass(signal);
  }

  reportAccepted(): void {
    this.#accepted += 1;
    if (this.#limit >= this.#options.concurrency || this.#accepted < this.#limit) return;
    this.#set(this.#limit + 1);
  }

  reportLimited({ epoch }: SendWindow, retryAfterMs = 0): void {
    this.#submissions.delay(retryAfterMs);
    if (epoch !== this.#epoch) return;
    this.#epoch += 1;
    this.#set(Math.max(1, Math.floor(Math.min(this.#limit, this.#inProgress) / 2)));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  delayPolls(ms: number): void {
    this.#polls.delay(ms);
  }

  #set(limit: number): void {
    this.#accepted = 0;
    if (limit === this.#limit) return;
    this.#limit = limit;
    this.#options.onLimit?.(limit);
    this.#wake();
  }

  #limitChange(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const onAbort = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', onAbort, { once: true });
      this.#waiting.push(() => {
        signal.removeEventListener('abort', onAbort);
        resolve();
      });
    });
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** Lets calls pass one at a time, in order. */
export class CallQueue {
  #last: Promise<unknown> = Promise.resolve();

  /**
   * Runs `step` after the steps of all earlier calls. A call whose signal aborts leaves the queue.
   * @throws the signal's reason.
   */
  pass<T>(signal: AbortSignal, step: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(() => {
      signal.throwIfAborted();
      return step();
    });
    this.#last = turn.catch(() => undefined);
    return new Promise((resolve, reject) => {
      const leave = (): void => reject(signal.reason as Error);
      signal.addEventListener('abort', leave, { once: true });
      if (signal.aborted) leave();
      void turn.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
    });
  }
}

/** Lets calls pass one at a time, with a minimum pause between two calls. Blocks all calls during a delay. */
export class RateLimiter {
  readonly #gapMs: number;
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>;
  readonly #queue = new CallQueue();
  /** The earliest time of the next call, in monotonic ms. */
  #next = 0;
  /** The end of the current delay, in monotonic ms. */
  #delayedUntil = 0;

  /** `gapMs` is the minimum pause between two calls, in ms. */
  constructor(gapMs: number, clock: Pick<Clock, 'monotonic' | 'sleep'>) {
    this.#gapMs = gapMs;
    this.#clock = clock;
  }

  /** The remaining delay before calls may pass, in ms. */
  get delayMs(): number {
    return Math.max(0, this.#delayedUntil - this.#clock.monotonic());
  }

  /** Delays all calls for `ms` milliseconds. */
  delay(ms: number): void {
    this.#delayedUntil = Math.max(this.#delayedUntil, this.#clock.monotonic() + ms);
  }

  /** Waits until this call may pass, and returns that time, in monotonic ms. @throws the signal's reason. */
  pass(signal: AbortSignal): Promise<number> {
    const calledAt = this.#clock.monotonic();
    return this.#queue.pass(signal, async () => {
      for (;;) {
        const opensAt = Math.max(calledAt, this.#next, this.#delayedUntil);
        const wait = opensAt - this.#clock.monotonic();
        // Timers have a resolution of one millisecond.
        if (wait < 1) {
          this.#next = opensAt + this.#gapMs;
          return opensAt;
        }
        await this.#clock.sleep(wait, signal);
      }
    });
  }
}
