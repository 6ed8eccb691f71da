import type { Clock } from '../clock.ts';

/** A gate that calls pass one by one, no closer than a pause, and not while it is held. */
export class Gate {
  readonly #gapMs: number;
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>;
  /** Both in monotonic ms. */
  #next = 0;
  #heldUntil = 0;

  /** `gapMs` is the least pause between two calls. */
  constructor(gapMs: number, clock: Pick<Clock, 'monotonic' | 'sleep'>) {
    this.#gapMs = gapMs;
    this.#clock = clock;
  }

  /** How long the gate is held, ms. */
  get heldMs(): number {
    return Math.max(0, this.#heldUntil - this.#clock.monotonic());
  }

  /** Lets nobody pass for so long. */
  hold(ms: number): void {
    this.#heldUntil = Math.max(this.#heldUntil, this.#clock.monotonic() + ms);
  }

  /** Waits for the turn of this call, and gives its time, monotonic ms. @throws the signal's reason. */
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
