import type { Clock } from '../../src/clock.ts';

/**
 * Returns a process's clock. `stop` simulates that the process was stopped for some time: the clock jumps ahead. Sleeps
 * use `clock`, so they do not end earlier.
 */
export function stoppable(clock: Clock): Clock & { stop: (ms: number) => void } {
  let stopped = 0;
  return {
    ...clock,
    now: () => clock.now() + stopped,
    monotonic: () => clock.monotonic() + stopped,
    stop: (ms) => void (stopped += ms),
  };
}

interface Sleeper {
  until: number;
  wake: () => void;
}

/**
 * A clock whose short sleeps, such as pauses between attempts, end immediately. Long sleeps end only when the test
 * advances the time.
 */
export class TestClock implements Clock {
  /** The short sleeps so far, in ms. */
  readonly pauses: number[] = [];
  readonly #long: number;
  #now = 0;
  #sleepers = new Set<Sleeper>();

  constructor(long = 50_000) {
    this.#long = long;
  }

  now(): number {
    return 1_700_000_000_000 + this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (ms >= this.#long) return this.#hold(ms, signal);
    this.pauses.push(ms);
    this.#now += ms;
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
  }

  /** Advances the time by `ms` and resolves the sleeps that are due. */
  advance(ms: number): void {
    this.#now += ms;
    for (const sleeper of this.#sleepers) if (sleeper.until <= this.#now) sleeper.wake();
  }

  #hold(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener('abort', aborted);
      };
      const aborted = (): void => {
        leave();
        reject(signal?.reason as Error);
      };
      const wake = (): void => {
        leave();
        resolve();
      };
      const sleeper = { until: this.#now + ms, wake };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', aborted);
    });
  }
}
