import type { Clock } from '../clock.ts';
import { Gate } from './gate.ts';

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

/** A submission's turn. */
export interface Turn {
  /** Counts the changes downwards that came before it. */
  epoch: number;
  /** False once it is too late to send for it: it might come to the gateway together with turns after it. */
  isGood(): boolean;
}

/** So late a submission may be after its turn, ms: for a connection, and for what is recorded before its first byte. */
const mostLateMs = 2000;

/** Between two turns, ms: of submissions that are so late at most, no minute sees more than `perMinute`. */
export function gapOf(perMinute: number | undefined): number {
  return perMinute === undefined ? 0 : (60_000 + mostLateMs) / perMinute;
}

/** The turn of a time, monotonic ms. */
export function turnAt(at: number, epoch: number, { perMinute, clock }: PaceOptions): Turn {
  return { epoch, isGood: () => perMinute === undefined || clock.monotonic() <= at + mostLateMs };
}

/**
 * How many tasks of a batch are under way, and when its next call may go out. The gateway's 429 halves the number of tasks,
 * its acceptances let it grow again, one by one; its `Retry-After` holds every submission.
 */
export interface Pace {
  /** Tasks that may be under way now. */
  readonly limit: number;
  /** How long submissions are held by the gateway's wish, ms. */
  readonly heldMs: number;
  /** Waits until one more task may be under way. @throws the signal's reason. */
  enter(signal: AbortSignal): Promise<void>;
  /** A task is no longer under way. */
  leave(): void;
  /** Waits until the next submission may go out. @throws the signal's reason. */
  submission(signal: AbortSignal): Promise<Turn>;
  /** Waits until the next poll may go out. @throws the signal's reason. */
  poll(signal: AbortSignal): Promise<unknown>;
  /** The gateway accepted a task. */
  accepted(): void;
  /** The gateway takes no more for now: 429, or its own 503. `turn` is of the submission that it answered. */
  limited(turn: Turn, retryAfterMs?: number): void;
  /** The gateway wants to be asked less often. A minute at most: the wait of a job has an end of its own. */
  holdPolls(retryAfterMs?: number): void;
  /** Gives back what is held. */
  close(): Promise<void>;
}

// So many jobs are polled in the time after which one of them is polled again.
const pollsPerInterval = 100;

/** The gate of a process's polls, `intervalMs` being the least pause between two polls of one job. */
export function gateOfPolls({ intervalMs, clock }: Pick<PaceOptions, 'intervalMs' | 'clock'>): Gate {
  return new Gate(intervalMs / pollsPerInterval, clock);
}

/** The pace of a batch that one process carries out. */
export class LocalPace implements Pace {
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
    const { concurrency, perMinute, clock } = options;
    this.#options = options;
    this.#limit = concurrency;
    this.#submissions = new Gate(gapOf(perMinute), clock);
    this.#polls = gateOfPolls(options);
  }

  get limit(): number {
    return this.#limit;
  }

  get heldMs(): number {
    return this.#submissions.heldMs;
  }

  async enter(signal: AbortSignal): Promise<void> {
    while (this.#underWay >= this.#limit) await this.#change(signal);
    signal.throwIfAborted();
    this.#underWay += 1;
  }

  leave(): void {
    this.#underWay -= 1;
    this.#wake();
  }

  async submission(signal: AbortSignal): Promise<Turn> {
    const at = await this.#submissions.pass(signal);
    return turnAt(at, this.#epoch, this.#options);
  }

  poll(signal: AbortSignal): Promise<unknown> {
    return this.#polls.pass(signal);
  }

  accepted(): void {
    this.#accepted += 1;
    if (this.#limit >= this.#options.concurrency || this.#accepted < this.#limit) return;
    this.#set(this.#limit + 1);
  }

  limited({ epoch }: Turn, retryAfterMs = 0): void {
    this.#submissions.hold(retryAfterMs);
    if (epoch !== this.#epoch) return;
    this.#epoch += 1;
    this.#set(Math.max(1, Math.floor(Math.min(this.#limit, this.#underWay) / 2)));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

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
