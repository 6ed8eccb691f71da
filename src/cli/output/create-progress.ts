import type { Progress, ProgressOptions, Transfer, Waiting } from './progress.ts';
import { terminalProgress } from './spinner.ts';
import { elapsed, jobText, remainingText, size, transferText, waitingText } from './wording.ts';
import { printableLine } from '../../printable.ts';

/** A terminal with room gets a spinner and a bar; anything else gets plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  return isInteractive(options) && !options.quiet ? terminalProgress(options) : lineProgress(options);
}

/** True for a terminal that can erase a line. A dumb terminal and a CI log cannot, even if isTTY is true. */
export function isInteractive({ stderr, env }: ProgressOptions): boolean {
  return stderr.isTTY === true && (stderr.columns ?? 0) > 0 && env['TERM'] !== 'dumb' && !env['CI'];
}

const heartbeatMs = 60_000;

/** Plain lines: one for each change of state, and a heartbeat after a minute without one. */
function lineProgress({ stderr, quiet, clock }: ProgressOptions): Progress {
  const jobs = new Map<string, Waiting>();
  let pulse: NodeJS.Timeout | undefined;
  let status: (() => string) | undefined;
  let started = clock.monotonic();
  const line = (text: string): void => {
    if (!quiet) stderr.write(`${printableLine(text)}\n`);
    clearTimeout(pulse);
    if (status !== undefined) pulse = setTimeout(beat, heartbeatMs).unref();
  };
  const beat = (): void => line(status?.() ?? '');
  const begin = (next: () => string): void => {
    if (status === undefined) started = clock.monotonic();
    status = next;
  };
  const after = (): string => ` after ${elapsed(clock.monotonic() - started)}`;
  const waited = (): string => waitedText([...jobs.values()], after(), clock.now());
  const rest = (): void => {
    clearTimeout(pulse);
    status = undefined;
  };
  let [transferring, hasGivenWay] = [false, false];
  return {
    note: line,
    waiting: (job) => {
      const before = jobs.get(job.id);
      jobs.set(job.id, job);
      begin(waited);
      if (before === undefined || jobText(before) !== jobText(job)) line(jobText(job));
    },
    ended: (id) => {
      jobs.delete(id);
      if (jobs.size === 0) rest();
    },
    downloading: (transfer) => {
      begin(() => `${transferText(transfer)}${after()}`);
      if (!transferring) line(beginText(transfer));
      transferring = true;
    },
    calling: (what) => {
      if (status !== undefined || hasGivenWay) return () => undefined;
      const own = (): string => `${what}${after()}`;
      begin(own);
      pulse = setTimeout(beat, heartbeatMs).unref();
      return () => {
        if (status === own) rest();
      };
    },
    counting: ({ what, done, total, of }) => {
      begin(() => `${what} ${done} of ${total} ${of}${after()}`);
      if (isWorthALine(done, total)) line(`${what} ${done} of ${total} ${of}`);
    },
    aside: (action) => action(),
    giveWay: () => void (hasGivenWay = true),
    stop: () => {
      rest();
      transferring = false;
    },
  };
}

function waitedText(jobs: readonly Waiting[], after: string, now: number): string {
  return `${waitingText(jobs)}${after}${remainingText(jobs, now)}`;
}

function beginText({ what = 'downloading', total }: Transfer): string {
  return total === undefined ? what : `${what} ${size(total)}`;
}

// There may be hundreds: print a line for each tenth of them.
function isWorthALine(done: number, total: number): boolean {
  return Math.floor((done * 10) / total) > Math.floor(((done - 1) * 10) / total);
}
