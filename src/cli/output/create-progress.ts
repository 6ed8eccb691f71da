import {
  type Progress,
  type ProgressOptions,
  type Transfer,
  type Waiting,
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
import type * as TextWidth from '../help/wrap.ts';
import { wrapped, type Measure } from '../help/wrap.ts';

/** Creates the progress display: a spinner and a bar on a terminal, otherwise plain lines without control codes. */
export function createProgress(options: ProgressOptions): Progress {
  return isInteractive(options) && !options.quiet ? terminalProgress(options) : lineProgress(options);
}

/** True for a terminal that can erase a line. A dumb terminal and a CI log cannot, even if isTTY is true. */
export function isInteractive({ stderr, env }: ProgressOptions): boolean {
  return stderr.isTTY === true && (stderr.columns ?? 0) > 0 && env['TERM'] !== 'dumb' && !env['CI'];
}

const heartbeatMs = 60_000;

/** Prints plain lines: one for each change of state, and a heartbeat after a minute without a line. */
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

// Whether to print a line: one for each tenth, because there may be hundreds of things to count.
function isWorthALine(done: number, total: number): boolean {
  return Math.floor((done * 10) / total) > Math.floor(((done - 1) * 10) / total);
}

// A call that takes less time is not shown.
const callShownAfterMs = 100;
const redrawMs = 500;
// The spinner, a space, and one free column so that no terminal wraps.
const besideText = 3;

/** Draws a single line: a spinner with the current wait and its duration, or the bar of a transfer. */
export function terminalProgress(options: ProgressOptions): Progress {
  const { stderr, clock } = options;
  const columns = (): number => stderr.columns ?? 80;
  const jobs = new Map<string, Waiting>();
  const calls = new Set<string>();
  let moving: Transfer | Count | undefined;
  let started: number | undefined;
  let hasGivenWay = false;
  const shown = (): readonly string[] =>
    linesOf(moving, [...jobs.values()], [...calls], clock.monotonic() - (started ?? 0), clock.now());
  const line = spinningLine(options, (widths) => fitting(shown(), columns() - besideText, widths));
  const show = (atOnce = false): void => {
    if (hasGivenWay) return;
    if (moving === undefined && jobs.size === 0 && calls.size === 0) {
      started = undefined;
      line.hide();
      return;
    }
    started ??= clock.monotonic();
    line.show(atOnce);
  };
  const move = (to: Transfer | Count, isWhole: boolean): void => {
    // A small file is complete before the next frame is due; show it anyway.
    const atOnce = moving === undefined || isWhole;
    moving = to;
    show(atOnce);
  };
  return {
    note: (text) => line.above(`${wrapped(printableLine(text), columns(), '', atMostWide)}\n`),
    waiting: (job) => {
      jobs.set(job.id, job);
      show();
    },
    ended: (id) => {
      jobs.delete(id);
      moving = undefined;
      show();
    },
    calling: (what) => {
      if (hasGivenWay) return () => undefined;
      // Loads the spinner now, so that it can be drawn immediately later.
      line.prepare();
      return shownLate(what, calls, show);
    },
    downloading: (transfer) => move(transfer, transfer.bytes === transfer.total),
    counting: (count) => move(count, count.done === count.total),
    aside: (action) => line.aside(action),
    giveWay: () => {
      hasGivenWay = true;
      line.hide();
    },
    stop: () => {
      moving = undefined;
      jobs.clear();
      calls.clear();
      started = undefined;
      line.hide();
    },
  };
}

// A note may be printed before the widths of characters are loaded, so characters beyond Latin count as wide.
const atMostWide: Measure = (text) =>
  Array.from(text).reduce((width, character) => width + (character > '\xff' ? 2 : 1), 0);

// Returns lines of decreasing length about the transfer if there is one, else about the waiting jobs, else about the
// latest call.
function linesOf(
  moving: Transfer | Count | undefined,
  jobs: readonly Waiting[],
  calls: readonly string[],
  ms: number,
  now: number,
): readonly string[] {
  const after = ` after ${elapsed(ms)}`;
  if (moving !== undefined)
    return 'done' in moving ? countLines(moving, after) : transferLines(moving, after);
  if (jobs.length > 0) return waitingLines(jobs, after, remainingText(jobs, now));
  return calls.slice(-1).flatMap((call) => [`${call}${after}`, call]);
}

function shownLate(what: string, calls: Set<string>, show: () => void): () => void {
  const timer = setTimeout(() => {
    calls.add(what);
    show();
  }, callShownAfterMs).unref();
  return () => {
    clearTimeout(timer);
    if (calls.delete(what)) show();
  };
}

// Returns the first line that fits. Later lines are shorter and say less.
function fitting(lines: readonly string[], room: number, { widthOf, cutToWidth }: Widths): string {
  const plain = lines.map((line) => printableLine(line));
  return plain.find((line) => widthOf(line) <= room) ?? cutToWidth(plain.at(-1) ?? '', Math.max(1, room));
}

/** The widths of characters, loaded when there is something to show. */
type Widths = Pick<typeof TextWidth, 'widthOf' | 'cutToWidth'>;

interface SpinningLine {
  prepare(): void;
  /** If `atOnce`, draws immediately instead of when the next frame is due. */
  show(atOnce: boolean): void;
  above(text: string): void;
  aside<T>(action: () => Promise<T>): Promise<T>;
  hide(): void;
}

// Loads ora when there is something to show, and starts it only if there still is.
function spinningLine({ stderr, color }: ProgressOptions, textOf: (widths: Widths) => string): SpinningLine {
  let spinner: Ora | undefined;
  let text = (): string => '';
  let loading: Promise<void> | undefined;
  let isShown = false;
  let redrawn: NodeJS.Timeout | undefined;
  const begin = (): void => {
    if (spinner === undefined || !isShown) return;
    spinner.start(text());
    // The seconds count up, which may change what fits.
    redrawn ??= setInterval(() => {
      if (spinner !== undefined && isShown) spinner.text = text();
    }, redrawMs).unref();
  };
  const load = async (): Promise<void> => {
    const [{ default: ora }, widths] = await Promise.all([import('ora'), import('../help/wrap.ts')]);
    text = () => textOf(widths);
    spinner = ora({ stream: stderr, isEnabled: true, discardStdin: false, color: color ? 'cyan' : false });
    begin();
  };
  const prepare = (): void => void (loading ??= load());
  return {
    prepare,
    show: (atOnce) => {
      isShown = true;
      prepare();
      if (spinner === undefined) return;
      if (!spinner.isSpinning) begin();
      else {
        spinner.text = text();
        if (atOnce) spinner.render();
      }
    },
    above: (lines) => {
      spinner?.stop();
      stderr.write(lines);
      begin();
    },
    aside: async (action) => {
      spinner?.stop();
      try {
        return await action();
      } finally {
        begin();
      }
    },
    hide: () => {
      isShown = false;
      clearInterval(redrawn);
      redrawn = undefined;
      spinner?.stop();
    },
  };
}
