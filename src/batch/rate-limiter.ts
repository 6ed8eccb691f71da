import type { Clock } from '../clock.ts';

/** Lets calls pass one by one, with a pause between them, and none while it is held. */
export class RateLimiter {
  readonly #gapMs: number;
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>;
  /** Both in monotonic ms. */
  #next = 0;
  #heldUntil = 0;

  /** `gapMs` is the shortest pause between two calls. */
  constructor(gapMs: number, clock: Pick<Clock, 'monotonic' | 'sleep'>) {
    this.#gapMs = gapMs;
    this.#clock = clock;
  }

  /** How long calls are still held, ms. */
  get heldMs(): number {
    return Math.max(0, this.#heldUntil - this.#clock.monotonic());
  }

  /** Holds all calls for this long. */
  hold(ms: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, this.#clock.monotonic() + ms);
  }

  /** Waits until this call may pass. Returns that time, monotonic ms. @throws the signal's reason. */
  async pass(signal: AbortSignal): Promise<number> {
    for (;;) {
      while (this.heldMs > 0) await this.#clock.sleep(this.heldMs, signal);
      const turn = Math.max(this.#next, this.#clock.monotonic());
      this.#next = turn + this.#gapMs;
      const wait = turn - this.#clock.monotonic();
      // A timer is no finer than a millisecond.
      if (wait >= 1) await this.#clock.sleep(wait, signal);
      if (this.heldMs === 0) return turn;
    }
  }
}
