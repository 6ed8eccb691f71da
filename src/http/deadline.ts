import { maxTimerMs, type Deadline, type Clock } from '../clock.ts';
import { TransportError } from './transport-error.ts';

// Created once, because capturing an error's stack is slow.
const deadlinePassed = new Error('the deadline passed');

/** The time limit of one call. The caller must call `end`, so that no timer outlives the call. */
export interface CallLimit {
  /** Aborts when the time runs out or a parent aborts. */
  signal: AbortSignal;
  /** Whether the time ran out before a parent aborted. */
  readonly hasPassed: boolean;
  /**
   * Restarts the timer, to expire in `ms` milliseconds, or never if `ms` is infinite. A parent can still abort the
   * signal.
   */
  restart(ms: number): void;
  abort(reason: Error): void;
  /** Clears the timer and stops following the parents. */
  end(): void;
}

/**
 * Starts a limit of `ms` milliseconds, whose signal also aborts when a parent does. AbortSignal.any and
 * AbortSignal.timeout would keep their signals alive until the timer fires: a process that polls a thousand jobs would
 * accumulate thousands of signals.
 */
export function startLimit(ms: number, parents: readonly (AbortSignal | undefined)[] = []): CallLimit {
  const controller = new AbortController();
  let hasExpired = false;
  let timer: NodeJS.Timeout | undefined;
  const expire = (): void => {
    hasExpired = !controller.signal.aborted;
    controller.abort(deadlinePassed);
  };
  const restart = (limitMs: number): void => {
    clearTimeout(timer);
    timer = limitMs === Infinity ? undefined : setTimeout(expire, Math.min(limitMs, maxTimerMs));
  };
  restart(ms);
  const follow = (event: Event): void => controller.abort((event.target as AbortSignal).reason);
  for (const parent of parents) {
    if (parent?.aborted) controller.abort(parent.reason);
    else parent?.addEventListener('abort', follow, { once: true });
  }
  return {
    signal: controller.signal,
    get hasPassed() {
      return hasExpired;
    },
    restart,
    abort: (reason) => controller.abort(reason),
    end: () => {
      clearTimeout(timer);
      for (const parent of parents) parent?.removeEventListener('abort', follow);
    },
  };
}

/** The time limits for receiving a body. */
export interface TimeLimits {
  /** The maximum time without a byte, in ms. */
  idleMs: number;
  /** The time at which the body is abandoned, even if bytes arrive. */
  deadline: Deadline;
}

/**
 * Passes on a body as it arrives. Abandons the body if no bytes arrive for `idleMs`, or at the deadline. The time that
 * the reader spends on a chunk does not count. The caller closes the connection.
 * @throws TransportError if the body is abandoned, or the body's own error
 */
export async function* withIdleTimeout(
  body: AsyncIterable<Uint8Array>,
  limits: TimeLimits,
): AsyncGenerator<Uint8Array, void> {
  const chunks = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await withinLimits(chunks.next(), limits);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // Not awaited, because a pending read ends only when the connection closes.
    chunks.return?.().catch(() => undefined);
  }
}

async function withinLimits<T>(read: Promise<T>, { idleMs, deadline }: TimeLimits): Promise<T> {
  const leftMs = deadline.remainingMs();
  const reason = leftMs < idleMs ? 'the deadline passed' : `no data arrived for ${idleMs / 1000} s`;
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    const abandon = (): void => reject(new TransportError('sent', 'timeout', reason));
    if (leftMs <= 0) abandon();
    else timer = setTimeout(abandon, Math.min(idleMs, leftMs, maxTimerMs));
  });
  return Promise.race([timeout, read]).finally(() => clearTimeout(timer));
}

/** Aborts a transfer that receives no bytes for too long, or whose deadline has passed. */
export interface IdleWatch {
  /** Aborts after the idle time, at the deadline, or when `parent` aborts. The signal's reason states the cause. */
  readonly signal: AbortSignal;
  /** Restarts the idle time, because bytes have arrived. */
  touch(): void;
  /** Pauses the idle time until the next `touch`, because the reader has stopped reading. */
  pause(): void;
  /** Ends the watch, and aborts its signal. */
  stop(): void;
}

// Created once: the default abort error formats its stack, which is slow.
const watchEnded = new Error('the watch has ended');

/** Starts an {@link IdleWatch} for a transfer. */
export function watchIdle(clock: Clock, { idleMs, deadline }: TimeLimits, parent?: AbortSignal): IdleWatch {
  const limit = startLimit(Infinity, [parent]);
  let lastByteAt = clock.monotonic();
  const watch = async (): Promise<void> => {
    for (
      let remainingMs = idleMs;
      remainingMs > 0 && deadline.remainingMs() > 0;
      remainingMs = lastByteAt + idleMs - clock.monotonic()
    ) {
      await clock.sleep(Math.min(remainingMs, idleMs, deadline.remainingMs()), limit.signal);
    }
    const isLate = deadline.remainingMs() <= 0;
    limit.abort(new Error(isLate ? 'the deadline passed' : `no data arrived for ${idleMs / 1000} s`));
  };
  // Stopping the watch rejects its sleep, which is not an error.
  watch().catch(() => undefined);
  return {
    signal: limit.signal,
    touch: () => (lastByteAt = clock.monotonic()),
    pause: () => (lastByteAt = Infinity),
    stop: () => {
      limit.end();
      limit.abort(watchEnded);
    },
  };
}
