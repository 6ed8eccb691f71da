import { isFinal } from '../../job.ts';
import type { Count, Transfer, Waiting } from './progress.ts';

/** Describes the jobs that are waited for: the single job and its state, or the number in each state. */
export function waitingText(jobs: readonly Waiting[]): string {
  const [first] = jobs;
  if (first !== undefined && jobs.length === 1) return `${jobText(first)}${percentText(first)}`;
  const counts = new Map<string, number>();
  for (const { state } of jobs) counts.set(state, (counts.get(state) ?? 0) + 1);
  return `${jobs.length} jobs: ${[...counts].map(([state, count]) => `${count} ${state}`).join(', ')}`;
}

/** {@link waitingText} in several lengths, the longest first. The id is dropped first, state and percent never. */
export function waitingLines(jobs: readonly Waiting[], after: string, left: string): string[] {
  const full = `${waitingText(jobs)}${after}`;
  const [first, ...others] = jobs;
  if (first === undefined || others.length > 0) return [`${full}${left}`, full, waitingText(jobs)];
  const short = `${first.state}${percentText(first)}`;
  const said = `${first.state}${nativeText(first)}${percentText(first)}${after}`;
  return [`${full}${left}`, `${said}${left}`, `${short}${after}${left}`, `${short}${after}`, short];
}

/** Describes a job and its state. */
export function jobText(job: Waiting): string {
  return `${job.id} ${job.state}${nativeText(job)}`;
}

function nativeText({ native }: Waiting): string {
  return native === undefined ? '' : ` (${native})`;
}

function percentText({ percent }: Waiting): string {
  return percent === undefined ? '' : ` ${Math.round(percent)}%`;
}

// The estimate from earlier jobs is approximate.
const lateMs = 10_000;

/** Describes when the single job may be ready; '' if unknown. `now` in ms since 1970. */
export function remainingText([job, ...others]: readonly Waiting[], now: number): string {
  if (job?.expectedAt === undefined || others.length > 0 || isFinal(job.state)) return '';
  const left = job.expectedAt - now;
  if (left >= 1000) return `, about ${elapsed(left)} left`;
  return left < -lateMs ? ', longer than usual' : '';
}

/** Describes a transfer. */
export function transferText({ what = 'downloading', bytes, total, bytesPerSecond }: Transfer): string {
  return `${what} ${size(bytes)}${total === undefined ? '' : ` of ${size(total)}`}${speed(bytesPerSecond)}`;
}

const barLength = 24;

/** A transfer in several lengths, the longest first: with a bar if its size is known, then percent and bytes. */
export function transferLines(transfer: Transfer, after: string): string[] {
  const { what = 'downloading', bytes, total, bytesPerSecond } = transfer;
  if (!total) return [`${transferText(transfer)}${after}`, transferText(transfer), `${what} ${size(bytes)}`];
  const amount = `${size(bytes)} of ${size(total)}`;
  const percent = `${Math.min(100, Math.floor((100 * bytes) / total))}%`;
  return [
    `${what} ${bar(bytes, total)} ${amount}${speed(bytesPerSecond)}${after}`,
    `${what} ${bar(bytes, total)} ${amount}${speed(bytesPerSecond)}`,
    `${what} ${percent} ${amount}${speed(bytesPerSecond)}`,
    `${what} ${percent} ${amount}`,
    `${percent} ${size(bytes)}`,
  ];
}

/** Describes how many things are done, the longest text first. */
export function countLines({ what, done, total, of }: Count, after: string): string[] {
  const amount = `${done} of ${total} ${of}`;
  return [`${what} ${bar(done, total)} ${amount}${after}`, `${what} ${amount}${after}`, `${what} ${amount}`];
}

function bar(done: number, total: number): string {
  const filled = Math.min(barLength, Math.round((barLength * done) / total));
  return `[${'#'.repeat(filled)}${'-'.repeat(barLength - filled)}]`;
}

function speed(bytesPerSecond: number | undefined): string {
  return bytesPerSecond ? `, ${size(bytesPerSecond)}/s` : '';
}

/** Formats bytes in a readable unit. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power] ?? ''}`;
}

/** Formats a duration in ms: `8s`, `2m05s`, `1h02m`. */
export function elapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  if (minutes === 0) return `${seconds}s`;
  if (minutes < 60) return `${minutes}m${String(seconds % 60).padStart(2, '0')}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, '0')}m`;
}
