import { isFinal } from '../../job.ts';
import type { Transfer, Waiting } from './progress.ts';

/** The jobs that are waited for, in a few words: the one job and its state, or how many are in each state. */
export function waitingText(jobs: readonly Waiting[]): string {
  const [first] = jobs;
  if (first !== undefined && jobs.length === 1) return `${jobText(first)}${percentText(first)}`;
  const counts = new Map<string, number>();
  for (const { state } of jobs) counts.set(state, (counts.get(state) ?? 0) + 1);
  return `${jobs.length} jobs: ${[...counts].map(([state, count]) => `${count} ${state}`).join(', ')}`;
}

/** A job and its state. */
export function jobText({ id, state, native }: Waiting): string {
  return `${id} ${state}${native === undefined ? '' : ` (${native})`}`;
}

function percentText({ percent }: Waiting): string {
  return percent === undefined ? '' : ` ${Math.round(percent)}%`;
}

// Earlier jobs took about as long, not exactly.
const lateMs = 10_000;

/** When the one job may be ready, or '' where nothing tells. `now` in ms since 1970. */
export function leftText([job, ...others]: readonly Waiting[], now: number): string {
  if (job?.expectedAt === undefined || others.length > 0 || isFinal(job.state)) return '';
  const left = job.expectedAt - now;
  if (left >= 1000) return `, about ${elapsed(left)} left`;
  return left < -lateMs ? ', longer than usual' : '';
}

/** A transfer in a few words. */
export function transferText({ what = 'downloading', bytes, total, bytesPerSecond }: Transfer): string {
  return `${what} ${size(bytes)}${total === undefined ? '' : ` of ${size(total)}`}${speed(bytesPerSecond)}`;
}

const barLength = 24;

/** A transfer as a bar, where its length is known. */
export function bar(transfer: Transfer): string {
  const { what = 'downloading', bytes, total, bytesPerSecond } = transfer;
  if (!total) return transferText(transfer);
  const done = Math.min(barLength, Math.round((barLength * bytes) / total));
  const drawn = `[${'#'.repeat(done)}${'-'.repeat(barLength - done)}]`;
  return `${what} ${drawn} ${size(bytes)} of ${size(total)}${speed(bytesPerSecond)}`;
}

function speed(bytesPerSecond: number | undefined): string {
  return bytesPerSecond ? `, ${size(bytesPerSecond)}/s` : '';
}

/** Bytes in the unit a person reads. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power] ?? ''}`;
}

/** A span of ms as a person says it: `8s`, `2m05s`, `1h02m`. */
export function elapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  if (minutes === 0) return `${seconds}s`;
  if (minutes < 60) return `${minutes}m${String(seconds % 60).padStart(2, '0')}s`;
  return `${Math.floor(minutes / 60)}h${String(minutes % 60).padStart(2, '0')}m`;
}
