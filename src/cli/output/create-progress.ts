import {
  type Progress,
  type ProgressOptions,
  type Transfer,
  type WaitingJob,
  elapsed,
  jobText,
  remainingText,
  size,
  transferText,
  waitingText,
  type Count,
  countLines,
  transferLines,
  waitingLines,
} from './progress.ts';
import { printableLine } from '../../printable.ts';
import type { Ora } from 'ora';
import { cutToWidth, widthOf, wrap, type Measure } from '../help/wrap.ts';

/** Creates the progress display: a spinner and a bar on a terminal, otherwise plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  return isInteractive(options) && !options.quiet ? terminalProgress(options) : lineProgress(options);
}

/** Whether the stream is a terminal that can erase a line. Dumb terminals and CI logs cannot, even if isTTY is true. */
export function isInteractive({ stderr, env }: ProgressOptions): boolean {
  return stderr.isTTY === true && (stderr.columns ?? 0) > 0 && env['TERM'] !== 'dumb' && !env['CI'];
}

const heartbeatMs = 60_000;

/** Prints plain lines: one for each change of state, and a heartbeat after a minute without a line. */
function lineProgress({ stderr, quiet, clock }: ProgressOptions): Progress {
  const jobs = new Map<string, WaitingJob>();
  let heartbeat: NodeJS.Timeout | undefined;
  let status: (() => string) | undefined;
  let startedAt = clock.monotonic();
  const printLine = (text: string): void => {
    if (!quiet) stderr.write(`${printableLine(text)}\n`);
    clearTimeout(heartbeat);
    if (status !== undefined) heartbeat = setTimeout(printStatus, heartbeatMs).unref();
  };
  const printStatus = (): void => printLine(status?.() ?? '');
  const setStatus = (next: () => string): void => {
    if (status === undefined) startedAt = clock.monotonic();
    status = next;
  };
  const after = (): string => ` after ${elapsed(clock.monotonic() - startedAt)}`;
  const waitStatus = (): string => waitStatusText([...jobs.values()], after(), clock.now());
  const endStatus = (): void => {
    clearTimeout(heartbeat);
    status = undefined;
  };
  let [isTransferring, showsNotesOnly] = [false, false];
  return {
    note: printLine,
    waiting: (job) => {
      const previous = jobs.get(job.id);
      jobs.set(job.id, job);
      setStatus(waitStatus);
      if (previous === undefined || jobText(previous) !== jobText(job)) printLine(jobText(job));
    },
    ended: (id) => {
      jobs.delete(id);
      if (jobs.size === 0) endStatus();
    },
    downloading: (transfer) => {
      setStatus(() => `${transferText(transfer)}${after()}`);
      if (!isTransferring) printLine(transferStartText(transfer));
      isTransferring = true;
    },
    calling: (what) => {
      if (status !== undefined || showsNotesOnly) return () => undefined;
      const callStatus = (): string => `${what}${after()}`;
      setStatus(callStatus);
      heartbeat = setTimeout(printStatus, heartbeatMs).unref();
      return () => {
        if (status === callStatus) endStatus();
      };
    },
    counting: ({ activity, done, total, unit }) => {
      setStatus(() => `${activity} ${done} of ${total} ${unit}${after()}`);
      if (isWorthALine(done, total)) printLine(`${activity} ${done} of ${total} ${unit}`);
    },
    withSpinnerHidden: (action) => action(),
    showNotesOnly: () => void (showsNotesOnly = true),
    stop: () => {
      endStatus();
      isTransferring = false;
    },
  };
}

function waitStatusText(jobs: readonly WaitingJob[], after: string, now: number): string {
  return `${waitingText(jobs)}${after}${remainingText(jobs, now)}`;
}

function transferStartText({ activity = 'downloading', total }: Transfer): string {
  return total === undefined ? activity : `${activity} ${size(total)}`;
}

// Whether to print a line. The total may be in the hundreds, so a line is printed only for each tenth of the total.
function isWorthALine(done: number, total: number): boolean {
  return Math.floor((done * 10) / total) > Math.floor(((done - 1) * 10) / total);
}

// How long a call must last before it is displayed, in ms.
const callShownAfterMs = 100;
const redrawMs = 500;
// The columns for the spinner, a space, and one free column that prevents wrapping.
const reservedColumns = 3;

/** Draws a single line: a spinner with the current wait and its duration, or the bar of a transfer. */
export function terminalProgress(options: ProgressOptions): Progress {
  const { stderr, clock } = options;
  const columns = (): number => stderr.columns ?? 80;
  const jobs = new Map<string, WaitingJob>();
  const calls = new Set<string>();
  let activity: Transfer | Count | undefined;
  let startedAt: number | undefined;
  let showsNotesOnly = false;
  const lines = (): readonly string[] =>
    linesOf(activity, [...jobs.values()], [...calls], clock.monotonic() - (startedAt ?? 0), clock.now());
  const line = spinningLine(options, () => fittingLine(lines(), columns() - reservedColumns));
  const show = (isImmediate = false): void => {
    if (showsNotesOnly) return;
    if (activity === undefined && jobs.size === 0 && calls.size === 0) {
      startedAt = undefined;
      line.hide();
      return;
    }
    startedAt ??= clock.monotonic();
    line.show(isImmediate);
  };
  const setActivity = (next: Transfer | Count, isComplete: boolean): void => {
    // A small file is complete before the next frame is due, but should still be displayed.
    const isImmediate = activity === undefined || isComplete;
    activity = next;
    show(isImmediate);
  };
  return {
    note: (text) => line.printAbove(`${wrap(printableLine(text), columns(), '', maxWidthOf)}\n`),
    waiting: (job) => {
      jobs.set(job.id, job);
      show();
    },
    ended: (id) => {
      jobs.delete(id);
      activity = undefined;
      show();
    },
    calling: (what) => {
      if (showsNotesOnly) return () => undefined;
      // Loads the spinner in advance, so that it can be drawn without delay.
      line.prepare();
      return showAfterDelay(what, calls, show);
    },
    downloading: (transfer) => setActivity(transfer, transfer.bytes === transfer.total),
    counting: (count) => setActivity(count, count.done === count.total),
    withSpinnerHidden: (action) => line.withSpinnerHidden(action),
    showNotesOnly: () => {
      showsNotesOnly = true;
      line.hide();
    },
    stop: () => {
      activity = undefined;
      jobs.clear();
      calls.clear();
      startedAt = undefined;
      line.hide();
    },
  };
}

// Treats non-Latin characters as wide, because measuring them would load the character widths for every note.
const maxWidthOf: Measure = (text) =>
  Array.from(text).reduce((width, character) => width + (character > '\xff' ? 2 : 1), 0);

// Returns versions of the progress line, the longest first. The line describes the transfer if there is one, else the
// waiting jobs, else the latest call.
function linesOf(
  activity: Transfer | Count | undefined,
  jobs: readonly WaitingJob[],
  calls: readonly string[],
  ms: number,
  now: number,
): readonly string[] {
  const after = ` after ${elapsed(ms)}`;
  if (activity !== undefined)
    return 'done' in activity ? countLines(activity, after) : transferLines(activity, after);
  if (jobs.length > 0) return waitingLines(jobs, after, remainingText(jobs, now));
  return calls.slice(-1).flatMap((call) => [`${call}${after}`, call]);
}

function showAfterDelay(what: string, calls: Set<string>, show: () => void): () => void {
  const timer = setTimeout(() => {
    calls.add(what);
    show();
  }, callShownAfterMs).unref();
  return () => {
    clearTimeout(timer);
    if (calls.delete(what)) show();
  };
}

// Returns the first line that fits. Later lines are shorter and less detailed.
function fittingLine(lines: readonly string[], maxWidth: number): string {
  const plain = lines.map((line) => printableLine(line));
  return (
    plain.find((line) => widthOf(line) <= maxWidth) ?? cutToWidth(plain.at(-1) ?? '', Math.max(1, maxWidth))
  );
}

interface SpinningLine {
  prepare(): void;
  /** Shows the current text: immediately if `isImmediate`, otherwise in the next frame. */
  show(isImmediate: boolean): void;
  printAbove(text: string): void;
  withSpinnerHidden<T>(action: () => Promise<T>): Promise<T>;
  hide(): void;
}

// Loads ora when there is something to display. Starts the spinner once ora is loaded, unless nothing is left to
// display.
function spinningLine({ stderr, color }: ProgressOptions, text: () => string): SpinningLine {
  let spinner: Ora | undefined;
  let loading: Promise<void> | undefined;
  let isShown = false;
  let redrawTimer: NodeJS.Timeout | undefined;
  const startSpinner = (): void => {
    if (spinner === undefined || !isShown) return;
    spinner.start(text());
    // As the elapsed time grows, a different line may be the longest that fits.
    redrawTimer ??= setInterval(() => {
      if (spinner !== undefined && isShown) spinner.text = text();
    }, redrawMs).unref();
  };
  const load = async (): Promise<void> => {
    const { default: ora } = await import('ora');
    spinner = ora({ stream: stderr, isEnabled: true, discardStdin: false, color: color ? 'cyan' : false });
    startSpinner();
  };
  const prepare = (): void => void (loading ??= load());
  return {
    prepare,
    show: (isImmediate) => {
      isShown = true;
      prepare();
      if (spinner === undefined) return;
      if (!spinner.isSpinning) startSpinner();
      else {
        spinner.text = text();
        if (isImmediate) spinner.render();
      }
    },
    printAbove: (lines) => {
      spinner?.stop();
      stderr.write(lines);
      startSpinner();
    },
    withSpinnerHidden: async (action) => {
      spinner?.stop();
      try {
        return await action();
      } finally {
        startSpinner();
      }
    },
    hide: () => {
      isShown = false;
      clearInterval(redrawTimer);
      redrawTimer = undefined;
      spinner?.stop();
    },
  };
}
