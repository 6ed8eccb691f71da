import type { Writable } from 'node:stream';
import type { Ora } from 'ora';
import { printableLine } from '../../printable.ts';

/** What a person sees on stderr while something goes on. */
export interface Progress {
  /** A line that stays. */
  note(text: string): void;
  /** What is being waited for: a spinner on a terminal, else a line for each change and a heartbeat a minute. */
  waiting(what: Waiting): Promise<void>;
  /** Bytes of a download so far. */
  downloading(bytes: number, total?: number, bytesPerSecond?: number): Promise<void>;
  /** Ends the spinner. */
  stop(): void;
}

/** What is being waited for. */
export interface Waiting {
  /** What is shown as long as it lasts, such as a job and its state. */
  what: string;
  /** What moves within it, such as a percentage: shown where a line can be redrawn. */
  detail?: string;
}

/** How progress is shown. */
export interface ProgressOptions {
  stderr: Writable & { isTTY?: boolean; columns?: number };
  quiet: boolean;
  color: boolean;
  now: () => number;
}

const heartbeatMs = 60_000;

/** A terminal with room gets a spinner and a bar; anything else gets plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  const { stderr, quiet } = options;
  const terminal = stderr.isTTY === true && (stderr.columns ?? 0) > 0;
  return terminal && !quiet ? onTerminal(options) : inLines(options);
}

function inLines({ stderr, quiet, now }: ProgressOptions): Progress {
  let last = '';
  let lastAt = now();
  const started = now();
  const line = (text: string): void => void (quiet || stderr.write(`${text}\n`));
  const changed = (key: string, text: () => string): Promise<void> => {
    const due = now() - lastAt >= heartbeatMs;
    if (key !== last || due) {
      line(due && key === last ? `${text()} after ${elapsed(now() - started)}` : text());
      lastAt = now();
    }
    last = key;
    return Promise.resolve();
  };
  return {
    note: (text) => line(printableLine(text)),
    waiting: ({ what }) => changed(what, () => printableLine(what)),
    downloading: (bytes, total) =>
      changed(
        'downloading',
        () => `downloading${total === undefined ? '' : ` ${size(total)}`} (${size(bytes)} so far)`,
      ),
    stop: () => undefined,
  };
}

function onTerminal({ stderr, color, now }: ProgressOptions): Progress {
  let spinner: Ora | undefined;
  let text = '';
  const started = now();
  const show = async (next: string): Promise<void> => {
    text = next;
    spinner ??= (await import('ora')).default({
      stream: stderr as NodeJS.WriteStream,
      discardStdin: false,
      color: color ? 'cyan' : false,
      suffixText: () => elapsed(now() - started),
    });
    spinner.text = text;
    if (!spinner.isSpinning) spinner.start();
  };
  return {
    note: (line) => {
      const spinning = spinner?.isSpinning === true;
      spinner?.stop();
      stderr.write(`${printableLine(line)}\n`);
      if (spinning) spinner?.start(text);
    },
    waiting: ({ what, detail }) => show(printableLine(`${what} ${detail ?? ''}`, 200)),
    downloading: (bytes, total, speed) => show(bar(bytes, total, speed)),
    stop: () => void spinner?.stop(),
  };
}

function bar(bytes: number, total: number | undefined, speed: number | undefined): string {
  const rate = speed === undefined ? '' : `  ${size(speed)}/s`;
  if (total === undefined || total === 0) return `downloading ${size(bytes)}${rate}`;
  const done = Math.min(24, Math.round((24 * bytes) / total));
  return `downloading [${'#'.repeat(done)}${'-'.repeat(24 - done)}] ${size(bytes)} of ${size(total)}${rate}`;
}

/** Bytes in the unit a person reads. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power] ?? ''}`;
}

function elapsed(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  return seconds < 60
    ? `${seconds}s`
    : `${Math.floor(seconds / 60)}m${String(seconds % 60).padStart(2, '0')}s`;
}
