import type { Writable } from 'node:stream';
import type { Clock } from '../../clock.ts';
import { type JobState, isFinal } from '../../job.ts';

/** The progress display on stderr. */
export interface Progress {
  /** Prints a permanent line. */
  note(text: string): void;
  /**
   * Shows the latest state of a job that mgw is waiting for: with a spinner on a terminal, otherwise with a line for
   * each change.
   */
  waiting(job: WaitingJob): void;
  /** Stops displaying a job. */
  ended(id: string): void;
  /**
   * Shows an outstanding call on a terminal if nothing else is shown. Returns a function that stops displaying the
   * call.
   */
  calling(activity: string): () => void;
  /** Shows the progress of a transfer. */
  downloading(transfer: Transfer): void;
  /** Shows how many of several items are done. */
  counting(count: Count): void;
  /** Hides the spinner while `action` uses the terminal, for example to write data. */
  withSpinnerHidden<T>(action: () => Promise<T>): Promise<T>;
  /** Shows only notes from now on, because another display uses the terminal. */
  showNotesOnly(): void;
  /** Removes the spinner from the terminal, and ends the heartbeat. */
  stop(): void;
}

/** A job that mgw is waiting for. */
export interface WaitingJob {
  id: string;
  /** The state in mgw's terms. `native` is the gateway's own word, if it is more specific. */
  state: JobState;
  native?: string;
  /** The progress from 0 to 100; absent if the gateway did not report it. */
  percent?: number;
  /** The end time estimated from earlier jobs of the same model, in ms since 1970. */
  expectedAt?: number;
}

/** The progress of a download or a stream. */
export interface Transfer {
  /** The activity; default `downloading`. */
  activity?: string;
  bytes: number;
  /** The total size; absent if unknown. */
  total?: number;
  bytesPerSecond?: number;
}

/** How many of several items are done: `speaking`, 3 of 12 `pieces`. */
export interface Count {
  activity: string;
  done: number;
  total: number;
  unit: string;
}

/** Options for the progress display. */
export interface ProgressOptions {
  stderr: Writable & { isTTY?: boolean; columns?: number };
  env: NodeJS.ProcessEnv;
  quiet: boolean;
  color: boolean;
  clock: Pick<Clock, 'now' | 'monotonic'>;
}

/** Describes the jobs that mgw is waiting for: a single job and its state, or the number of jobs in each state. */
export function waitingText(jobs: readonly WaitingJob[]): string {
  const [first] = jobs;
  if (first !== undefined && jobs.length === 1) return `${jobText(first)}${percentText(first)}`;
  const counts = new Map<string, number>();
  for (const { state } of jobs) counts.set(state, (counts.get(state) ?? 0) + 1);
  return `${jobs.length} jobs: ${[...counts].map(([state, count]) => `${count} ${state}`).join(', ')}`;
}

/**
 * Returns the text of {@link waitingText} in several lengths, the longest first. Omits the id first, and never the
 * state or the percentage.
 */
export function waitingLines(jobs: readonly WaitingJob[], after: string, left: string): string[] {
  const full = `${waitingText(jobs)}${after}`;
  const [first, ...others] = jobs;
  if (first === undefined || others.length > 0) return [`${full}${left}`, full, waitingText(jobs)];
  const shortText = `${first.state}${percentText(first)}`;
  const stateText = `${first.state}${nativeText(first)}${percentText(first)}${after}`;
  return [
    `${full}${left}`,
    `${stateText}${left}`,
    `${shortText}${after}${left}`,
    `${shortText}${after}`,
    shortText,
  ];
}

/** Describes a job and its state. */
export function jobText(job: WaitingJob): string {
  return `${job.id} ${job.state}${nativeText(job)}`;
}

function nativeText({ native }: WaitingJob): string {
  return native === undefined ? '' : ` (${native})`;
}

function percentText({ percent }: WaitingJob): string {
  return percent === undefined ? '' : ` ${Math.round(percent)}%`;
}

// The delay, in ms, after which a job is reported as taking longer than usual. The estimate from earlier jobs is
// approximate.
const lateMs = 10_000;

/** Describes when a single waiting job may be ready; '' if that is unknown. `now` is in ms since 1970. */
export function remainingText([job, ...others]: readonly WaitingJob[], now: number): string {
  if (job?.expectedAt === undefined || others.length > 0 || isFinal(job.state)) return '';
  const remainingMs = job.expectedAt - now;
  if (remainingMs >= 1000) return `, about ${elapsed(remainingMs)} left`;
  return remainingMs < -lateMs ? ', longer than usual' : '';
}

/** Describes a transfer: its activity, bytes and speed. */
export function transferText({ activity = 'downloading', bytes, total, bytesPerSecond }: Transfer): string {
  return `${activity} ${size(bytes)}${total === undefined ? '' : ` of ${size(total)}`}${speed(bytesPerSecond)}`;
}

const barLength = 24;

/**
 * Describes a transfer in several lengths, the longest first: with a bar if its size is known, then percent and bytes.
 */
export function transferLines(transfer: Transfer, after: string): string[] {
  const { activity = 'downloading', bytes, total, bytesPerSecond } = transfer;
  if (!total)
    return [`${transferText(transfer)}${after}`, transferText(transfer), `${activity} ${size(bytes)}`];
  const amount = `${size(bytes)} of ${size(total)}`;
  const percent = `${Math.min(100, Math.floor((100 * bytes) / total))}%`;
  return [
    `${activity} ${bar(bytes, total)} ${amount}${speed(bytesPerSecond)}${after}`,
    `${activity} ${bar(bytes, total)} ${amount}${speed(bytesPerSecond)}`,
    `${activity} ${percent} ${amount}${speed(bytesPerSecond)}`,
    `${activity} ${percent} ${amount}`,
    `${percent} ${size(bytes)}`,
  ];
}

/** Describes how many items are done, in several lengths, the longest first. */
export function countLines({ activity, done, total, unit }: Count, after: string): string[] {
  const amount = `${done} of ${total} ${unit}`;
  return [
    `${activity} ${bar(done, total)} ${amount}${after}`,
    `${activity} ${amount}${after}`,
    `${activity} ${amount}`,
  ];
}

function bar(done: number, total: number): string {
  const filled = Math.min(barLength, Math.round((barLength * done) / total));
  return `[${'#'.repeat(filled)}${'-'.repeat(barLength - filled)}]`;
}

function speed(bytesPerSecond: number | undefined): string {
  return bytesPerSecond ? `, ${size(bytesPerSecond)}/s` : '';
}

/** Formats a number of bytes in a readable unit, such as `1.5 MB`. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power] ?? ''}`;
}

/** Formats a duration, given in ms, such as `8s`, `2m05s` or `1h02m`. */
export function elapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  if (minutes === 0) return `${seconds}s`;
  if (minutes < 60) return `${minutes}m${String(seconds % 60).padStart(2, '0')}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, '0')}m`;
}
