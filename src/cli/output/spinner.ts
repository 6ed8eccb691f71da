import type { Ora } from 'ora';
import { printableLine } from '../../printable.ts';
import type { Progress, ProgressOptions, Waiting } from './progress.ts';
import { bar, elapsed, leftText, waitingText } from './wording.ts';

/** A line that is drawn again and again: a spinner with what is waited for and how long, then a bar. */
export function terminalProgress(options: ProgressOptions): Progress {
  const { stderr, clock } = options;
  const jobs = new Map<string, Waiting>();
  let started: number | undefined;
  let timing = (): string => '';
  const line = spinningLine(options, () => timing());
  let transferring = false;
  const show = (text: string, suffix: () => string, atOnce = false): void => {
    started ??= clock.monotonic();
    timing = () => `after ${elapsed(clock.monotonic() - (started ?? 0))}${suffix()}`;
    line.show(printableLine(text, Math.max(20, (stderr.columns ?? 80) - timing().length - 4)), atOnce);
  };
  const showJobs = (): void => {
    const all = [...jobs.values()];
    if (all.length > 0) show(waitingText(all), () => leftText(all, clock.now()));
  };
  return {
    note: (text) => line.above(`${printableLine(text)}\n`),
    waiting: (job) => {
      jobs.set(job.id, job);
      showJobs();
    },
    ended: (id) => {
      jobs.delete(id);
      showJobs();
    },
    downloading: (transfer) => {
      // A small file is there before the next frame is due; it is shown all the same.
      show(bar(transfer), () => '', !transferring || transfer.bytes === transfer.total);
      transferring = true;
    },
    aside: (action) => line.aside(action),
    stop: () => {
      transferring = false;
      started = undefined;
      line.stop();
    },
  };
}

interface SpinningLine {
  /** `atOnce` draws it now and not when the next frame is due. */
  show(text: string, atOnce: boolean): void;
  above(text: string): void;
  aside<T>(action: () => Promise<T>): Promise<T>;
  stop(): void;
}

// ora is loaded when there is something to show; whether it still is then decides over starting.
function spinningLine({ stderr, color }: ProgressOptions, suffix: () => string): SpinningLine {
  let spinner: Ora | undefined;
  let loading: Promise<void> | undefined;
  let shown: string | undefined;
  const load = async (): Promise<void> => {
    const { default: ora } = await import('ora');
    spinner = ora({
      stream: stderr,
      isEnabled: true,
      discardStdin: false,
      color: color ? 'cyan' : false,
      suffixText: suffix,
    });
    if (shown !== undefined) spinner.start(shown);
  };
  return {
    show: (text, atOnce) => {
      shown = text;
      loading ??= load();
      if (spinner === undefined) return;
      spinner.text = text;
      if (!spinner.isSpinning) spinner.start();
      else if (atOnce) spinner.render();
    },
    above: (text) => {
      spinner?.stop();
      stderr.write(text);
      if (shown !== undefined) spinner?.start();
    },
    aside: async (action) => {
      spinner?.stop();
      try {
        return await action();
      } finally {
        if (shown !== undefined) spinner?.start();
      }
    },
    stop: () => {
      shown = undefined;
      spinner?.stop();
    },
  };
}
