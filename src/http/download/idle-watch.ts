import type { Clock } from '../../clock.ts';

/** Sees to it that a connection on which nothing comes is given up. */
export interface IdleWatch {
  /** Aborted once nothing came for the whole time. */
  readonly signal: AbortSignal;
  /** Something came: the time begins anew. */
  touch(): void;
  /** Nothing can come, since the reader itself has stopped reading; until the next `touch`. */
  hold(): void;
  /** Ends the watch. */
  stop(): void;
}

/** Begins to watch; `idleMs` without a `touch` abort its signal. */
export function watchIdle(clock: Clock, idleMs: number): IdleWatch {
  const stalled = new AbortController();
  const stopped = new AbortController();
  let last = clock.monotonic();
  const watch = async (): Promise<void> => {
    for (let left = idleMs; left > 0; left = last + idleMs - clock.monotonic()) {
      await clock.sleep(Math.min(left, idleMs), stopped.signal);
    }
    stalled.abort(new Error(`nothing came for ${idleMs / 1000} s`));
  };
  // The watch ends by being stopped, which is no error.
  watch().catch(() => undefined);
  return {
    signal: stalled.signal,
    touch: () => (last = clock.monotonic()),
    hold: () => (last = Infinity),
    stop: () => stopped.abort(),
  };
}
