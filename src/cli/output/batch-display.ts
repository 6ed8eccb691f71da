import type { Ora } from 'ora';
import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Job } from '../../job.ts';
import { labelOf, type PlannedRow, rowStates, type RowState } from '../../batch/planned-row.ts';
import type { Tally } from '../../batch/row-state.ts';
import { shownState } from '../../jobs/reconcile.ts';
import { printableLine, escapeControls } from '../../printable.ts';
import { cutToWidth } from '../help/wrap.ts';
import { isInteractive } from './create-progress.ts';
import { type ProgressOptions, elapsed } from './progress.ts';
import { localError } from '../../errors.ts';
import { withoutSignatures } from '../../redact.ts';

const heartbeatMs = 60_000;
const redrawMs = 500;
const maxRows = 8;

/** Displays a batch run: as a live block on a terminal that supports it, otherwise as lines with a heartbeat. */
export class BatchDisplay {
  readonly #options: ProgressOptions;
  readonly #tally: Tally;
  readonly #money: () => string;
  readonly #rows = new Map<string, string>();
  readonly #startedAt: number;
  readonly #isInteractive: boolean;
  #spinner: Ora | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #isOver = false;
  /** When the latest row ended, in ms since the start of the run. */
  #lastEndMs: number | undefined;

  /** @param money returns the amount spent so far as text; '' if it is unknown */
  constructor(options: ProgressOptions, tally: Tally, money: () => string) {
    this.#options = options;
    this.#tally = tally;
    this.#money = money;
    this.#startedAt = options.clock.monotonic();
    this.#isInteractive = isInteractive(options) && !options.quiet;
  }

  /** Starts the display. */
  async start(): Promise<void> {
    if (this.#options.quiet) return;
    if (!this.#isInteractive) {
      this.#heartbeat = setInterval(() => this.#printLine(this.#summary()), heartbeatMs).unref();
      return;
    }
    const { default: ora } = await import('ora');
    const { stderr, color } = this.#options;
    if (this.#isOver) return;
    this.#spinner = ora({
      stream: stderr,
      isEnabled: true,
      discardStdin: false,
      color: color ? 'cyan' : false,
    });
    this.#spinner.start(this.#blockText());
    // The elapsed time grows although no row changes.
    this.#heartbeat = setInterval(() => this.#draw(), redrawMs).unref();
  }

  rowStarted(planned: PlannedRow): void {
    this.#rows.set(planned.key, labelOf(planned));
    this.#draw();
  }

  rowUpdated(planned: PlannedRow, job: Job): void {
    const percent = job.progress === undefined ? '' : ` ${Math.round(job.progress)}%`;
    this.#rows.set(planned.key, `${labelOf(planned)} ${shownState(job)}${percent}`);
    this.#draw();
  }

  /**
   * Reports that a row has ended. `text` is the line to print, if any. On a terminal, no line is printed for a row that
   * succeeded.
   */
  rowEnded({ key }: PlannedRow, state: RowState, text: string | undefined): void {
    this.#rows.delete(key);
    this.#lastEndMs = this.#options.clock.monotonic() - this.#startedAt;
    if (text !== undefined && (state !== 'done' || !this.#isInteractive)) this.note(text);
    else this.#draw();
  }

  /** Prints a permanent line. */
  note(text: string): void {
    if (this.#options.quiet) return;
    this.withSpinnerHidden(() => this.#printLine(text));
  }

  /** Hides the block while `action` writes to the terminal. */
  withSpinnerHidden<T>(action: () => T): T {
    const spinner = this.#spinner;
    if (spinner?.isSpinning !== true) return action();
    spinner.stop();
    const result = action();
    spinner.start(this.#blockText());
    return result;
  }

  stop(): void {
    this.#isOver = true;
    clearInterval(this.#heartbeat);
    this.#spinner?.stop();
    this.#spinner = undefined;
  }

  #printLine(text: string): void {
    this.#options.stderr.write(`${printableLine(text)}\n`);
  }

  // Only sets the text. ora redraws it about ten times a second.
  #draw(): void {
    if (this.#spinner !== undefined) this.#spinner.text = this.#blockText();
  }

  #blockText(): string {
    const width = Math.max(20, (this.#options.stderr.columns ?? 80) - 4);
    const rows = [...this.#rows.values()];
    const omitted = rows.length > maxRows ? [`… and ${rows.length - maxRows} more`] : [];
    const lines = [this.#summary(), ...rows.slice(0, maxRows), ...omitted];
    return lines
      .map((line, index) => (index === 0 ? '' : '  ') + cutToWidth(printableLine(line), width))
      .join('\n');
  }

  #summary(): string {
    const { counts, ended } = this.#tally;
    const ms = this.#options.clock.monotonic() - this.#startedAt;
    const rate = ended === 0 ? '' : `, ${rateText((ended * 60_000) / Math.max(1, ms))} a minute`;
    const remaining = this.#remainingText(ms);
    const money = this.#money();
    return `${stateCounts(counts).join(', ') || 'nothing to do yet'}; after ${elapsed(ms)}${rate}${remaining}${money === '' ? '' : `; ${money}`}`;
  }

  // Estimates the remaining time. Rows that run concurrently end in waves, and the rate is unreliable before the first
  // wave has ended. Between the ends of two rows, the estimate counts down.
  #remainingText(ms: number): string {
    const { chosen, ended } = this.#tally;
    if (ended === 0 || ended >= chosen || ended < this.#rows.size) return '';
    const lastEndMs = this.#lastEndMs ?? ms;
    return `, about ${elapsed(Math.max(0, (lastEndMs / ended) * (chosen - ended) - (ms - lastEndMs)))} left`;
  }
}

/** Returns the number of rows in each state that has rows, such as `3 done`. */
export function stateCounts(counts: Tally['counts']): string[] {
  return rowStates.filter((state) => counts[state] > 0).map((state) => `${counts[state]} ${state}`);
}

function rateText(rate: number): string {
  return rate >= 10 ? String(Math.round(rate)) : rate.toFixed(1);
}

/** A file with one JSON line for each row that has ended. */
export interface Results {
  /** Appends a line, and resolves when it is on disk or in the pipe. @throws MgwError('local_io') if that fails. */
  add(result: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the `--results` file or pipe for appending. Only its owner can read it. `redact` removes the key from each
 * line, and signatures are removed from URLs. Returns undefined without a path.
 * @throws MgwError('local_io'), exit 10, if the file cannot be opened.
 */
export async function openResults(
  path: string | undefined,
  redact: (text: string) => string,
): Promise<Results | undefined> {
  if (path === undefined) return undefined;
  const file = await open(path, 'a', 0o600).catch((error: unknown) => {
    throw localError(error, resolve(path), 'no');
  });
  // A pipe cannot be synced.
  const isRegular = (await file.stat()).isFile();
  return {
    add: async (result) => {
      try {
        await file.write(`${withoutSignatures(redact(escapeControls(JSON.stringify(result))))}\n`);
        if (isRegular) await file.datasync();
      } catch (error) {
        throw localError(error, resolve(path), 'yes');
      }
    },
    close: () => file.close(),
  };
}
