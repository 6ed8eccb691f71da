import type { Ora } from 'ora';
import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Job } from '../../job.ts';
import { labelOf, type PlannedRow, rowStates, type RowState } from '../../batch/planned-row.ts';
import type { Tally } from '../../batch/row-state.ts';
import { shownState } from '../../jobs/reconcile.ts';
import { printableLine, escapeControls } from '../../printable.ts';
import { isInteractive } from './create-progress.ts';
import { type ProgressOptions, elapsed } from './progress.ts';
import { localError } from '../../errors.ts';
import { withoutSignatures } from '../../redact.ts';

const heartbeatMs = 60_000;
const maxRows = 8;

/** The display of a run: a live block on a terminal with enough room, otherwise lines and a heartbeat. */
export class BatchDisplay {
  readonly #options: ProgressOptions;
  readonly #tally: Tally;
  readonly #money: () => string;
  readonly #rows = new Map<string, string>();
  readonly #started: number;
  readonly #isInteractive: boolean;
  #spinner: Ora | undefined;
  #pulse: NodeJS.Timeout | undefined;
  #isOver = false;
  /** The time at which the last row ended, ms since the start. */
  #lastEndMs: number | undefined;

  /** `money` describes the amount spent so far, or is ''. */
  constructor(options: ProgressOptions, tally: Tally, money: () => string) {
    this.#options = options;
    this.#tally = tally;
    this.#money = money;
    this.#started = options.clock.monotonic();
    this.#isInteractive = isInteractive(options) && !options.quiet;
  }

  /** Starts the display. */
  async start(): Promise<void> {
    if (this.#options.quiet) return;
    if (!this.#isInteractive) {
      this.#pulse = setInterval(() => this.#line(this.#summary()), heartbeatMs).unref();
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
    this.#spinner.start(this.#block());
  }

  began(planned: PlannedRow): void {
    this.#rows.set(planned.key, labelOf(planned));
    this.#draw();
  }

  updated(planned: PlannedRow, job: Job): void {
    const percent = job.progress === undefined ? '' : ` ${Math.round(job.progress)}%`;
    this.#rows.set(planned.key, `${labelOf(planned)} ${shownState(job)}${percent}`);
    this.#draw();
  }

  /**
   * Reports that a row has ended. `text` is the line to print, if any. On a terminal, a row that succeeded has no line.
   */
  ended({ key }: PlannedRow, state: RowState, text: string | undefined): void {
    this.#rows.delete(key);
    this.#lastEndMs = this.#options.clock.monotonic() - this.#started;
    if (text !== undefined && (state !== 'done' || !this.#isInteractive)) this.note(text);
    else this.#draw();
  }

  /** Prints a permanent line. */
  note(text: string): void {
    if (this.#options.quiet) return;
    this.aside(() => this.#line(text));
  }

  /** Uses the terminal while the block is hidden. */
  aside(action: () => void): void {
    const spinner = this.#spinner;
    if (spinner?.isSpinning !== true) action();
    else {
      spinner.stop();
      action();
      spinner.start(this.#block());
    }
  }

  stop(): void {
    this.#isOver = true;
    clearInterval(this.#pulse);
    this.#spinner?.stop();
    this.#spinner = undefined;
  }

  #line(text: string): void {
    this.#options.stderr.write(`${printableLine(text)}\n`);
  }

  // Only sets the text, which ora redraws about ten times a second.
  #draw(): void {
    if (this.#spinner !== undefined) this.#spinner.text = this.#block();
  }

  #block(): string {
    const width = Math.max(20, (this.#options.stderr.columns ?? 80) - 4);
    const rows = [...this.#rows.values()];
    const more = rows.length > maxRows ? [`… and ${rows.length - maxRows} more`] : [];
    const lines = [this.#summary(), ...rows.slice(0, maxRows), ...more];
    return lines.map((line, index) => (index === 0 ? '' : '  ') + printableLine(line, width)).join('\n');
  }

  #summary(): string {
    const { counts, ended } = this.#tally;
    const states = rowStates.filter((state) => counts[state] > 0).map((state) => `${counts[state]} ${state}`);
    const ms = this.#options.clock.monotonic() - this.#started;
    const rate = ended === 0 ? '' : `, ${rateText((ended * 60_000) / Math.max(1, ms))} a minute`;
    const left = this.#left(ms);
    const money = this.#money();
    return `${states.join(', ') || 'nothing to do yet'}; after ${elapsed(ms)}${rate}${left}${money === '' ? '' : `; ${money}`}`;
  }

  // Estimates the remaining time. Rows that run at the same time end in a wave, and the rate says little before the
  // first wave has ended. Between the ends of two rows, the estimate counts down.
  #left(ms: number): string {
    const { chosen, ended } = this.#tally;
    if (ended === 0 || ended >= chosen || ended < this.#rows.size) return '';
    const last = this.#lastEndMs ?? ms;
    return `, about ${elapsed(Math.max(0, (last / ended) * (chosen - ended) - (ms - last)))} left`;
  }
}

function rateText(rate: number): string {
  return rate >= 10 ? String(Math.round(rate)) : rate.toFixed(1);
}

/** A file with a line of JSON for each row that has ended. */
export interface Results {
  /** Appends a line, and resolves when it is on disk. @throws MgwError('local_io'). */
  add(result: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the file of `--results`, which only the owner can read; appends to existing lines. `redact` removes the key
 * from a line. Signatures are removed from URLs.
 * @throws MgwError('local_io'), exit 10.
 */
export async function openResults(path: string, redact: (text: string) => string): Promise<Results> {
  const file = await open(path, 'a', 0o600).catch((error: unknown) => {
    throw localError(error, resolve(path), 'no');
  });
  return {
    add: async (result) => {
      try {
        await file.write(`${withoutSignatures(redact(escapeControls(JSON.stringify(result))))}\n`);
        await file.datasync();
      } catch (error) {
        throw localError(error, resolve(path), 'yes');
      }
    },
    close: () => file.close(),
  };
}
