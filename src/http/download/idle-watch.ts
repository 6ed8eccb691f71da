import type { Clock } from '../../clock.ts';
import type { TimeLimits } from '../deadline.ts';

/** Aborts a transfer on which no bytes arrive for too long, or whose deadline has passed. */
export interface IdleWatch {
  /** Aborts after the idle time, at the deadline, or when `parent` aborts. Its reason tells which. */
  readonly signal: AbortSignal;
  /** Restarts the idle time, since bytes arrived. */
  touch(): void;
  /** Pauses the idle time until the next `touch`, while the reader has stopped reading. */
  pause(): void;
  /** Ends the watch, and aborts its signal. */
  stop(): void;
}

// Created once: the default error of an abort has its stack formatted, which is slow.
const ended = new Error('the watch has ended');

/** Starts to watch. */
export function watchIdle(clock: Clock, { idleMs, deadline }: TimeLimits, parent?: AbortSignal): IdleWatch {
  const given = new AbortController();
  let last = clock.monotonic();
  const watch = async (): Promise<void> => {
    for (
      let left = idleMs;
      left > 0 && deadline.remainingMs() > 0;
      left = last + idleMs - clock.monotonic()
    ) {
      await clock.sleep(Math.min(left, idleMs, deadline.remainingMs()), given.signal);
    }
    const isLate = deadline.remainingMs() <= 0;
    given.abort(new Error(isLate ? 'the time to wait ran out' : `no data arrived for ${idleMs / 1000} s`));
  };
  // Stopping the watch rejects its sleep, which is not an error.
  watch().catch(() => undefined);
  const follow = (): void => given.abort(parent?.reason);
  if (parent?.aborted) follow();
  else parent?.addEventListener('abort', follow, { once: true });
  return {
    signal: given.signal,
    touch: () => (last = clock.monotonic()),
    pause: () => (last = Infinity),
    stop: () => {
      parent?.removeEventListener('abort', follow);
      given.abort(ended);
    },
  };
}
