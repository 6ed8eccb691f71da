import { longestTimer } from '../clock.ts';

/** A limit of time for one call, ended by hand so that nothing of it outlives the call. */
export interface Deadline {
  /** Aborts when the time is up or a parent aborts. */
  signal: AbortSignal;
  /** True where the time was up first. */
  readonly passed: boolean;
  /** Lifts the limit of time; the parents still count. */
  lift(): void;
  /** Aborts it by hand. */
  abort(reason: Error): void;
  /** Frees the timer and lets go of the parents. */
  end(): void;
}

/**
 * Starts a limit of `ms` milliseconds that also follows its parents. AbortSignal.any and AbortSignal.timeout would
 * do, but each keeps its signal alive until the timer fires: a process that polls a thousand jobs holds thousands.
 */
export function startDeadline(ms: number, parents: readonly (AbortSignal | undefined)[] = []): Deadline {
  const controller = new AbortController();
  let passed = false;
  const timer = setTimeout(
    () => {
      passed = !controller.signal.aborted;
      controller.abort();
    },
    Math.min(ms, longestTimer),
  );
  const follow = (event: Event): void => controller.abort((event.target as AbortSignal).reason);
  for (const parent of parents) {
    if (parent?.aborted) controller.abort(parent.reason);
    else parent?.addEventListener('abort', follow, { once: true });
  }
  return {
    signal: controller.signal,
    get passed() {
      return passed;
    },
    lift: () => clearTimeout(timer),
    abort: (reason) => controller.abort(reason),
    end: () => {
      clearTimeout(timer);
      for (const parent of parents) parent?.removeEventListener('abort', follow);
    },
  };
}
