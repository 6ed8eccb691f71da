import { maxTimerMs, type Deadline, type Clock } from '../clock.ts';
import { TransportError } from './transport-error.ts';

// Created once, because the stack of an error is expensive.
const timeIsUp = new Error('the deadline passed');

/** The time limit of one call. The caller must end it, so that no timer outlives the call. */
export interface CallLimit {
  /** Aborts when the time is up or a parent aborts. */
  signal: AbortSignal;
  /** Whether the time was up before a parent aborted. */
  readonly passed: boolean;
  /** Restarts the time: `ms` from now, or no limit if infinite. The parents are still followed. */
  restart(ms: number): void;
  abort(reason: Error): void;
  /** Clears the timer and stops following the parents. */
  end(): void;
}

/**
 * Starts a limit of `ms` milliseconds that also follows its parents. AbortSignal.any and AbortSignal.timeout would keep
 * their signals alive until the timer fires: a process that polls a thousand jobs would hold thousands.
 */
export function startLimit(ms: number, parents: readonly (AbortSignal | undefined)[] = []): CallLimit {
  const controller = new AbortController();
  let passed = false;
  let timer: NodeJS.Timeout | undefined;
  const pass = (): void => {
    passed = !controller.signal.aborted;
    controller.abort(timeIsUp);
  };
  const restart = (limitMs: number): void => {
    clearTimeout(timer);
    timer = limitMs === Infinity ? undefined : setTimeout(pass, Math.min(limitMs, maxTimerMs));
  };
  restart(ms);
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
    restart,
    abort: (reason) => controller.abort(reason),
    end: () => {
      clearTimeout(timer);
      for (const parent of parents) parent?.removeEventListener('abort', follow);
    },
  };
}

/** The time limits of a body. */
export interface TimeLimits {
  /** The longest time without a byte, in ms. */
  idleMs: number;
  /** The time at which the body is abandoned, even if bytes arrive. */
  deadline: Deadline;
}

/**
 * Passes a body on as it arrives, and abandons it after a time without bytes, or at the deadline. The time that the
 * reader takes does not count. The caller closes the connection.
 * @throws TransportError if the body is abandoned, or the error of the body
 */
export async function* withIdleTimeout(
  body: AsyncIterable<Uint8Array>,
  limits: TimeLimits,
): AsyncGenerator<Uint8Array, void> {
  const chunks = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await inTime(chunks.next(), limits);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // A pending read ends when the connection closes.
    chunks.return?.().catch(() => undefined);
  }
}

async function inTime<T>(next: Promise<T>, { idleMs, deadline }: TimeLimits): Promise<T> {
  const leftMs = deadline.remainingMs();
  const why = leftMs < idleMs ? 'the deadline passed' : `no data arrived for ${idleMs / 1000} s`;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new TransportError('sent', 'timeout', why));
    if (leftMs <= 0) giveUp();
    else timer = setTimeout(giveUp, Math.min(idleMs, leftMs, maxTimerMs));
  });
  return Promise.race([late, next]).finally(() => clearTimeout(timer));
}

/** Aborts a transfer on which no bytes arrive for too long, or whose deadline has passed. */
export interface IdleWatch {
  /** Aborts after the idle time, at the deadline, or when `parent` aborts. Its reason says which. */
  readonly signal: AbortSignal;
  /** Restarts the idle time, because bytes have arrived. */
  touch(): void;
  /** Pauses the idle time until the next `touch`, while the reader has stopped reading. */
  pause(): void;
  /** Ends the watch, and aborts its signal. */
  stop(): void;
}

// Created once: the default error of an abort has its stack formatted, which is slow.
const ended = new Error('the watch has ended');

/** Starts the idle watch of a transfer. */
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
    given.abort(new Error(isLate ? 'the deadline passed' : `no data arrived for ${idleMs / 1000} s`));
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
