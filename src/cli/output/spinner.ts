import type { Ora } from 'ora';
import { printableLine } from '../../printable.ts';
import type * as TextWidth from '../help/wrap.ts';
import type { Count, Progress, ProgressOptions, Transfer, Waiting } from './progress.ts';
import { wrapped, type Measure } from '../help/wrap.ts';
import { countLines, elapsed, remainingText, transferLines, waitingLines } from './wording.ts';

// A shorter wait needs no spinner.
const callShownAfterMs = 100;
const redrawMs = 500;
// The spinner, a space, and one free column so that no terminal wraps.
const besideText = 3;

/** A line that is redrawn: a spinner with the current wait and its duration, then a bar. */
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
      // Load it now, so that it can be drawn at once later.
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

// A note may come before the widths of characters are loaded: assume that characters beyond Latin are wide.
const atMostWide: Measure = (text) =>
  Array.from(text).reduce((width, character) => width + (character > '\xff' ? 2 : 1), 0);

// A transfer comes before a waiting job, and that before a call; the longest text first.
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

// The first text that fits; the later ones say less.
function fitting(lines: readonly string[], room: number, { widthOf, cutToWidth }: Widths): string {
  const plain = lines.map((line) => printableLine(line));
  return plain.find((line) => widthOf(line) <= room) ?? cutToWidth(plain.at(-1) ?? '', Math.max(1, room));
}

/** The widths of characters, loaded when there is something to show. */
type Widths = Pick<typeof TextWidth, 'widthOf' | 'cutToWidth'>;

interface SpinningLine {
  prepare(): void;
  /** `atOnce` draws it now and not when the next frame is due. */
  show(atOnce: boolean): void;
  above(text: string): void;
  aside<T>(action: () => Promise<T>): Promise<T>;
  hide(): void;
}

// ora is loaded when there is something to show. Start it only if there still is.
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
