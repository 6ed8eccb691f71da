import { writeFile } from 'node:fs/promises';
import type { WorkerWatcher } from '../../batch/row-runner.ts';
import type { Batch } from '../../batch/plan.ts';
import type { PlannedRow, RowState } from '../../batch/planned-row.ts';
import { Tally, type RowEnd } from '../../batch/row-state.ts';
import type { RunBatchOptions } from '../commands/batch/options.ts';
import type { Context } from '../context.ts';
import { write } from '../io.ts';
import { BatchDisplay, openResults, stateCounts, type Results } from './batch-display.ts';
import { BatchReport } from './batch-report.ts';
import { commandText } from './human.ts';
import type { Outcome } from './outcome.ts';
import { exitCodes, messageOf, type MgwError } from '../../errors.ts';
import type { Job, JobFile } from '../../job.ts';
import { counted, printableLine } from '../../printable.ts';

const healthIntervalMs = 5000;

/** Reports a worker's rows as they start and end, and a summary when the worker stops. */
export class WorkerReport implements WorkerWatcher {
  readonly #context: Context;
  readonly #display: BatchDisplay;
  readonly #tally = new Tally();
  readonly #results: Results | undefined;
  readonly #healthFile: string | undefined;
  readonly #options: RunBatchOptions;
  readonly #rows: Record<string, unknown>[] = [];
  /** The number of done rows with a file that differs from the request. */
  #differing = 0;
  /**
   * The rows that this worker returned to the queue and has not claimed again, with the state that each had when it was
   * returned.
   */
  readonly #returned = new Map<string, RowState>();
  #healthWrittenAt = -Infinity;

  private constructor(
    context: Context,
    results: Results | undefined,
    { healthFile, ...options }: RunBatchOptions & { healthFile?: string },
  ) {
    // A worker's own limit, but the limit of the whole batch in a suggested command.
    this.#options = { ...options, concurrency: undefined };
    this.#context = context;
    this.#display = new BatchDisplay(context.displayOptions, this.#tally, () => '');
    this.#results = results;
    this.#healthFile = healthFile;
  }

  /**
   * Opens the `--results` file, and starts the display.
   * @param options the worker's options, which the suggested commands repeat
   * @throws MgwError('local_io') if the file cannot be written.
   */
  static async open(
    context: Context,
    options: RunBatchOptions & { healthFile?: string },
  ): Promise<WorkerReport> {
    const file = await openResults(options.results, (text) => context.redact(text));
    const report = new WorkerReport(context, file, options);
    context.progress.showNotesOnly();
    await report.#display.start();
    return report;
  }

  began({ name }: Batch, planned: PlannedRow): void {
    this.#uncountReturned(name, planned.id);
    this.#tally.count(planned.state, true);
    this.#display.rowStarted(planned);
  }

  updated(planned: PlannedRow, job: Job): void {
    this.#display.rowUpdated(planned, job);
  }

  async ended({ name }: Batch, end: RowEnd, state: RowState, isReturned: boolean): Promise<void> {
    const { globals, io } = this.#context;
    const report = new BatchReport(name, this.#options, globals);
    this.#tally.move(end.planned.state, state);
    this.#tally.ended += 1;
    this.#tally.files += end.files.length;
    if (isReturned) this.#returned.set(`${name}/${end.planned.id}`, state);
    if (state === 'done') this.#countMismatch(end.files);
    const result = report.resultLine(end, state);
    await this.#results?.add(result);
    if (globals.json && result['exit_code'] !== exitCodes.ok)
      this.#rows.push({ ...result, is_given_back: isReturned });
    const next = state === 'done' || isReturned ? '' : ` → ${report.commandText(end, state)}`;
    const line = `${name}/${report.logLine(end, state)}${isReturned ? ' (returned to the queue)' : ''}${next}`;
    this.#display.rowEnded(end.planned, state, this.#context.redact(line));
    if (globals.json || end.files.length === 0) return;
    const paths = end.files.map(({ path }) => `${path}\n`).join('');
    await this.#display.withSpinnerHidden(() => write(io.stdout, paths, 'yes'));
  }

  skipped({ name }: Batch, planned: PlannedRow): void {
    const { id, state, take } = planned;
    this.#uncountReturned(name, id);
    this.#tally.count(state, false);
    if (state === 'done') this.#countMismatch(take.job?.files ?? []);
    const reason = take.job?.error?.message ?? planned.changes?.join('; ');
    this.#printLine(`${name}/${id} ${state}${reason === undefined ? '' : `: ${reason}`}`);
  }

  bad({ name }: Batch, id: string, reason: string, isReturned: boolean): void {
    this.#uncountReturned(name, id);
    if (isReturned) {
      this.#tally.count('new', false);
      this.#returned.set(`${name}/${id}`, 'new');
    } else this.#tally.bad += 1;
    this.#printLine(`${name}/${id} cannot be run: ${reason}${isReturned ? ' (returned to the queue)' : ''}`);
  }

  quarantined(batch: string, id: string): void {
    const next = ['mgw', 'batch', 'enqueue', batch, '--again'];
    this.note(`${batch}/${id} quarantined: five workers died while running it`, next);
  }

  note(text: string, next: string[] = []): void {
    this.#printLine(next.length === 0 ? text : `${text} → ${commandText(next, this.#context.globals)}`);
  }

  alive(): void {
    const now = this.#context.clock.monotonic();
    if (this.#healthFile === undefined || now - this.#healthWrittenAt < healthIntervalMs) return;
    this.#healthWrittenAt = now;
    const { ended, chosen } = this.#tally;
    const health = { at: new Date(this.#context.clock.now()).toISOString(), in_hand: chosen - ended, ended };
    void writeFile(this.#healthFile, `${JSON.stringify(health)}\n`).catch((error: unknown) =>
      this.#printLine(`--health-file: ${messageOf(error)}`),
    );
  }

  /**
   * Prints the summary, and returns the worker's outcome. `signalExitCode` is the exit code of the signal that ended
   * the worker, if any.
   */
  outcome(stopError: MgwError | undefined, signalExitCode: number | undefined): Outcome {
    this.#display.stop();
    const { counts, files, rows } = this.#tally;
    const returned = this.#returned.size > 0 ? `; ${this.#returned.size} returned to the queue` : '';
    const saved = `${counted(files, 'file')} saved`;
    this.#context.progress.note(`${stateCounts(counts).join(', ') || 'no rows'}; ${saved}${returned}.`);
    if (this.#differing > 0)
      this.#context.progress.note(
        `${counted(this.#differing, 'row')} with a file that differs from the request: mgw jobs ls --mismatched`,
      );
    const hasSucceeded = this.#tally.isDone && !(this.#options.strict && this.#differing > 0);
    const workerExitCode = hasSucceeded ? exitCodes.ok : exitCodes.partial;
    return {
      json: { worker: { rows, states: counts, files, given_back: this.#returned.size }, rows: this.#rows },
      exitCode: signalExitCode ?? stopError?.exitCode ?? workerExitCode,
      ...(stopError !== undefined && signalExitCode === undefined && { error: stopError }),
    };
  }

  async close(): Promise<void> {
    this.#display.stop();
    await this.#results?.close();
  }

  // Undoes the count of a returned row, so that a row that is claimed again is counted only once.
  #uncountReturned(batch: string, id: string): void {
    const state = this.#returned.get(`${batch}/${id}`);
    if (state === undefined) return;
    this.#returned.delete(`${batch}/${id}`);
    this.#tally.counts[state] -= 1;
  }

  #countMismatch(files: readonly JobFile[]): void {
    if (files.some(({ mismatches }) => mismatches !== undefined)) this.#differing += 1;
  }

  #printLine(text: string): void {
    this.#display.note(printableLine(this.#context.redact(text), 500));
  }
}
