import type { Clock } from '../../clock.ts';
import type { TimeLimits } from '../deadline.ts';

/** Sees to it that a connection is given up on which nothing comes, or whose time is up. */
export interface IdleWatch {
  /** Aborted once nothing came for the whole time, the deadline has passed, or `parent` was aborted; its reason says which. */
  readonly signal: AbortSignal;
  /** Something came: the time for silence begins anew. */
  touch(): void;
  /** Nothing can come, since the reader itself has stopped reading; until the next `touch`. */
  hold(): void;
  /** Ends the watch, and what is under way with its signal. */
  stop(): void;
}

// Made once: one that an abort makes by itself has its stack written out.
const ended = new Error('the watch has ended');

/** Begins to watch. */
export function watchIdle(clock: Clock, { idleMs, deadline }: TimeLimits, parent?: AbortSignal): IdleWatch {
  const given = new AbortController();
  let last = clock.monotonic();
  const watch = async (): Promise<void> => {
    for (let left = idleMs; left > 0 && deadline.leftMs() > 0; left = last + idleMs - clock.monotonic()) {
      await clock.sleep(Math.min(left, idleMs, deadline.leftMs()), given.signal);
    }
    const isLate = deadline.leftMs() <= 0;
    given.abort(new Error(isLate ? 'the time to wait ran out' : `nothing came for ${idleMs / 1000} s`));
  };
  // The watch ends by being stopped, which is no error.
  watch().catch(() => undefined);
  const follow = (): void => given.abort(parent?.reason);
  if (parent?.aborted) follow();
  else parent?.addEventListener('abort', follow, { once: true });
  return {
    signal: given.signal,
    touch: () => (last = clock.monotonic()),
    hold: () => (last = Infinity),
    stop: () => {
      parent?.removeEventListener('abort', follow);
      given.abort(ended);
    },
  };
}
