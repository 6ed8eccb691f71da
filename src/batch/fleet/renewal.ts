import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';

/** Renews what a process holds, three times in the course of a lease, until it is closed. */
export class Renewal {
  readonly #end = new AbortController();
  readonly #done: Promise<void>;

  /** `renew` may fail: what is held outlives two failures. */
  constructor(
    leaseMs: number,
    { clock, note }: { clock: Pick<Clock, 'sleep'>; note: (text: string) => void },
    renew: () => Promise<void>,
  ) {
    this.#done = this.#run(leaseMs / 3, clock, async () => {
      await renew().catch((error: unknown) => note(`What is held could not be renewed: ${messageOf(error)}`));
    });
  }

  /** Returns when nothing is being renewed any more. */
  close(): Promise<void> {
    this.#end.abort();
    return this.#done;
  }

  async #run(pauseMs: number, clock: Pick<Clock, 'sleep'>, renew: () => Promise<void>): Promise<void> {
    const { signal } = this.#end;
    for (;;) {
      await clock.sleep(pauseMs, signal).catch(() => undefined);
      if (signal.aborted) return;
      await renew();
    }
  }
}
