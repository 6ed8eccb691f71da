import { setMaxListeners } from 'node:events';

/** A time source. Code that waits or measures time takes a clock as a parameter, so that tests can replace it. */
export interface Clock {
  /**
   * Returns milliseconds since 1970, for timestamps. Do not measure durations with it, because
   * the user may change the system time.
   */
  now(): number;
  /** Returns milliseconds since an arbitrary fixed moment, for durations and deadlines. Never goes back. */
  monotonic(): number;
  /**
   * Resolves after `ms` milliseconds, or immediately if `ms` is zero or less.
   * @throws the signal's reason if it is aborted.
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The time when an operation is abandoned. Changes to the system time do not affect it. */
export interface Deadline {
  /** The time left until the deadline, in ms; 0 after the deadline. */
  remainingMs(): number;
}

/** Returns the deadline `ms` milliseconds from now. */
export function deadlineIn(ms: number, clock: Pick<Clock, 'monotonic'>): Deadline {
  const endTime = clock.monotonic() + ms;
  return { remainingMs: () => Math.max(0, endTime - clock.monotonic()) };
}

/** The maximum delay of a Node timer, in ms (24.8 days). A timer with a longer delay fires immediately. */
export const maxTimerMs = 2 ** 31 - 1;

/** The local machine's clock. A sleep lasts at most {@link maxTimerMs}. */
export const systemClock: Clock = { now: () => Date.now(), monotonic, sleep };

// Uses `process.hrtime`, because `performance` would load another Node module at every start.
function monotonic(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

// Replaces Node's own sleep function, which is slow: it creates an error with a stack trace on every abort.
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) throw signal.reason;
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener('abort', abort);
        resolve();
      },
      Math.min(Math.max(0, ms), maxTimerMs),
    );
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/**
 * Aborts `to` when `from` is aborted, with the same reason.
 * @returns a function that removes the listener. Call it when `to` is no longer needed, because many
 * calls may listen to the same signal.
 */
export function abortWith(from: AbortSignal | undefined, to: AbortController): () => void {
  if (from === undefined) return () => undefined;
  // Without this, Node warns on stderr if many calls listen to one signal. AbortSignal.any is no alternative, because
  // Node never frees the signals that it returns.
  setMaxListeners(0, from);
  const forwardAbort = (): void => to.abort(from.reason as unknown);
  if (from.aborted) forwardAbort();
  else from.addEventListener('abort', forwardAbort, { once: true });
  return () => from.removeEventListener('abort', forwardAbort);
}

const units = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
] as const;

const durationPattern =
  /^(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?$/;
const maxDurationMs = 365 * 86_400_000;

/**
 * Parses a duration such as `50ms`, `5s`, `20m`, `1h30m` or `1.5h`, and returns it in ms. Units must be in descending
 * order, each at most once. Refuses a number without a unit.
 * @throws Error whose message states the allowed values, without the flag's name.
 */
export function parseDuration(text: string): number {
  const parts = text.length > 64 ? null : durationPattern.exec(text);
  const ms = units.reduce((sum, [, unit], index) => sum + Number(parts?.[index + 1] ?? 0) * unit, 0);
  if (parts === null || text === '') throw new Error('a number with a unit, such as 5s, 20m, 1h30m or 2d');
  if (ms < 1 || ms > maxDurationMs) throw new Error('a duration from 1ms to 365d');
  return Math.round(ms);
}

/** Formats a duration in ms for {@link parseDuration}: `1h30m`, `5s` or `1s500ms`, and `0s` for zero. */
export function formatDuration(ms: number): string {
  let remainingMs = Math.max(0, Math.round(ms));
  const parts = units.map(([name, unit]) => {
    const count = Math.floor(remainingMs / unit);
    remainingMs -= count * unit;
    return count > 0 ? `${count}${name}` : '';
  });
  return parts.join('') || '0s';
}
