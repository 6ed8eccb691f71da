import { everyRow, type RowSelection, UnpaidRows } from '../../batch/row-selection.ts';
import type { Batch } from '../../batch/plan.ts';
import { labelOf, type PlannedRow, type RowState } from '../../batch/planned-row.ts';
import type { ReadyRun } from '../../batch/run-batch.ts';
import type { RowEnd } from '../../batch/row-state.ts';
import { flagsAsTyped, type RunBatchOptions } from '../commands/batch/options.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../options.ts';
import { stateCounts } from './batch-display.ts';
import { appendRows } from './github.ts';
import { commandText, shellWord } from './human.ts';
import { errorView, type Outcome } from './outcome.ts';
import {
  type RepeatCommand,
  commandOf,
  commandsFor,
  repeated,
  planView,
  rowView,
  explainSkipped,
  isOverBudget,
} from './plan.ts';
import { recordedBudget } from '../../budget/budget.ts';
import { add, type Decimal, formatDecimal, parseDecimal, zero } from '../../decimal.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import { commandWithGlobals, withBudget } from '../../flows/next.ts';
import { showCommand } from '../../jobs/errors.ts';
import { missingText } from '../../jobs/fetch-place.ts';
import { mismatchTexts, strictError } from '../../jobs/receipt.ts';
import { jobView } from '../../jobs/view.ts';
import type { Job, JobFile } from '../../job.ts';
import { neededLimit, withRaisedLimit } from '../../payment/reserve.ts';
import { counted, printableLine } from '../../printable.ts';

/** An unfinished row, and the command that continues it. */
interface UnfinishedRow {
  line: number;
  id: string;
  /** The row's name in messages: its id, or its prompt if the id is generated. */
  label: string;
  state: RowState;
  reason: string;
  next: string[];
  isOverBudget?: boolean;
  /** Whether a line was printed when the row ended. */
  isShown: boolean;
  because?: PlannedRow['because'];
}

const maxShown = 20;

/** Reports each row of a run as it ends, and the whole run when it ends. */
export class BatchReport {
  readonly #repeat: RepeatCommand;
  readonly #isStrict: boolean;
  readonly #globals: Globals;
  readonly #currency: string;
  readonly #unfinished: UnfinishedRow[] = [];
  /** The amount spent so far; undefined until a row with a known price has been paid for. */
  #spent: Decimal | undefined;
  readonly #unpaid: UnpaidRows;
  #unpriced = 0;
  #paidRows = 0;
  /** The number of rows that this run sent without learning whether they were accepted. */
  #doubtfulRows = 0;
  /** The number of rows with a file that differs from the request. */
  #differing = 0;

  /**
   * @param currency the currency name to print after amounts; not needed to report single rows
   * @param selection the flags that `batch retry` uses to select rows
   */
  constructor(
    file: string,
    options: RunBatchOptions,
    globals: Globals,
    currency = '',
    choice: RowSelection = everyRow,
    selection?: readonly string[],
  ) {
    this.#currency = currency;
    this.#unpaid = new UnpaidRows(choice);
    this.#repeat = { file, flags: flagsAsTyped(options), selection, isById: choice.ids !== undefined };
    this.#isStrict = options.strict ?? false;
    this.#globals = globals;
  }

  /** Adds a row to run, with its highest cost. */
  addChosen(planned: PlannedRow, cost: Decimal | undefined): void {
    this.#unpaid.add(planned, cost);
  }

  /** Reports a row that the run does not change. */
  addSkipped(planned: PlannedRow): void {
    const { id, state, take } = planned;
    this.#unpaid.remove(id);
    if (state === 'done') {
      this.#checkFiles(planned, take.job, take.job?.files ?? [], false);
      return;
    }
    const next = commandOf(planned, state, this.#repeat);
    this.#addRow(planned, {
      state,
      reason: explainSkipped(planned),
      next,
      isShown: false,
    });
  }

  /** Reports a row that has ended. */
  addEnded(end: RowEnd, state: RowState): void {
    const { planned, job, files, isPaid, error } = end;
    this.#unpaid.record(end, state);
    const isInDoubt = state === 'unknown';
    if (isPaid) this.#paidRows += 1;
    else if (isInDoubt) this.#doubtfulRows += 1;
    if (isPaid || isInDoubt) this.#addCost(job?.cost?.at_most);
    if (error === undefined) {
      this.#checkFiles(planned, job, files, true);
      return;
    }
    // The row's command would fail again until the error's own command has been run.
    const isLocal = error.code === 'local_io' && error.charged === 'no';
    const isUnpriced = error.code === 'budget' && !isOverBudget(error);
    const fix = isLocal || isUnpriced ? error.next : undefined;
    const next = fix ?? commandOf(planned, state, this.#repeat, error);
    const reason = failureText(error);
    this.#addRow(planned, { state, reason, next, isOverBudget: isOverBudget(error), isShown: true });
  }

  /** Returns a row's line for the `--results` file. */
  resultLine({ planned, job, files, ...end }: RowEnd, state: RowState): Record<string, unknown> {
    const error = end.error ?? (this.#isStrict && job ? strictError(job, files) : undefined);
    return {
      ...rowView({ ...planned, state }),
      exit_code: error?.exitCode ?? exitCodes.ok,
      job: job && jobView(job),
      files,
      error: error && errorView(error, this.#globals),
    };
  }

  /** Returns the log line of a row that has ended. */
  logLine({ planned, job, files, error }: RowEnd, state: RowState): string {
    const missing = this.#isStrict && job !== undefined ? missingText(job) : undefined;
    const fileTexts = files.map((file) => [file.path, ...mismatchTexts(file)].join(', '));
    const text = error === undefined ? fileTexts.concat(missing ?? []).join(', ') : failureText(error);
    return printableLine(`${labelOf(planned)} ${state}: ${text}`, 500);
  }

  /** Returns the command for a row that is not done. */
  commandText({ planned, error }: RowEnd, state: RowState): string {
    return this.#words(commandOf(planned, state, this.#repeat, error));
  }

  /** Describes the amount spent so far; '' if it is unknown. */
  money(): string {
    if (this.#spent === undefined) return '';
    return `at most ${formatDecimal(this.#spent)} ${this.#currency} spent${this.#unpriced > 0 ? ' on rows with a known price' : ''}`;
  }

  /** Prints the summary of a run, and returns its outcome. */
  async outcome(
    context: Context,
    batch: Batch,
    { plan, tally }: ReadyRun,
    stopError: MgwError | undefined,
    exitCode: number,
  ): Promise<Outcome> {
    const bad = tally.bad > 0 ? [`${tally.bad} skipped`] : [];
    const states = [...stateCounts(tally.counts), ...bad].join(', ') || 'no rows';
    const parts = [`${batch.name}: ${states}`, `${counted(tally.files, 'file')} saved`, this.money()];
    const summary = `${parts.filter(Boolean).join('; ')}.`;
    context.progress.note(summary);
    const limit = neededLimit(stopError, this.#unpaid.cost);
    const budget = recordedBudget(stopError?.budget?.name ?? '').kind === 'batch' ? limit : undefined;
    const retryBudget = budget && neededLimit(stopError, this.#unpaid.costWithPaidAgain);
    const unfinished = this.#unfinishedRows(budget, retryBudget);
    // Omits the rows that the error's own command covers, and those that it must not pay for again.
    const isCovered = ({ id, isOverBudget, next }: UnfinishedRow): boolean =>
      isOverBudget === true || this.#unpaid.isPaidAgain(id) || String(next) === String(stopError?.next);
    const reportable = unfinished.filter((row) => stopError?.budget === undefined || !isCovered(row));
    if (this.#differing > 0)
      context.progress.note(
        `${counted(this.#differing, 'row')} with a file that differs from the request: ${this.#words(['mgw', 'jobs', 'ls', '--mismatched', '--batch', batch.name])}`,
      );
    const unreported = reportable.filter(({ isShown }) => !isShown);
    for (const row of unreported.slice(0, maxShown)) context.progress.note(unfinishedText(row));
    if (unreported.length > maxShown)
      context.progress.note(
        `… and ${unreported.length - maxShown} more: mgw batch status ${shellWord(this.#repeat.file)}`,
      );
    const isStopped = stopError !== undefined && stopError.budget === undefined && this.#unpaid.hasUnstarted;
    const rest = isStopped ? [{ id: '', state: 'new' as const, next: this.#restCommand() }] : [];
    for (const command of commandsFor([...rest, ...reportable], this.#repeat).slice(0, maxShown))
      context.progress.note(`→ ${this.#words(command)}`);
    if (tally.files > 0)
      context.progress.note(
        `To view the results: ${this.#words(['mgw', 'jobs', 'gallery', '--batch', batch.name, '--serve'])}`,
      );
    const rows = unfinished.map((row) => ({ ...row, next: commandWithGlobals(row.next, this.#globals) }));
    await appendRows('mgw batch', summary, rows.slice(0, maxShown), context);
    const view = planView(batch, plan);
    return {
      json: {
        batch: { ...(view['batch'] as object), rows: tally.rows, states: tally.counts, files: tally.files },
        problems: view['problems'],
        rows: rows.map(({ line, id, state, next, reason }) => ({ line, id, state, next, message: reason })),
      },
      ...(stopError !== undefined &&
        exitCode !== exitCodes.ok && {
          error: this.#withCharges(this.#withLimit(stopError, limit, budget)).with(
            exitCode === exitCodes.partial ? { exit: 'partial' } : {},
          ),
        }),
      exitCode: exitCode === exitCodes.ok && unfinished.length > 0 ? exitCodes.partial : exitCode,
      ...(this.#isStrict &&
        unfinished.every(({ state }) => state === 'done') &&
        exitCode === exitCodes.ok && { partialText: 'Some results differ from their requests.' }),
    };
  }

  // Returns the rows by line. `budget` is the limit for a row over the budget, `retryBudget` for a row to be paid
  // again.
  #unfinishedRows(budget: string | undefined, retryBudget: string | undefined): UnfinishedRow[] {
    const limitOf = (row: UnfinishedRow): string | undefined =>
      row.isOverBudget ? budget : this.#unpaid.isPaidAgain(row.id) ? retryBudget : undefined;
    return this.#unfinished
      .sort((one, other) => one.line - other.line)
      .map((row) => ({ ...row, next: withBudget(row.next, limitOf(row)) }));
  }

  // A row that is paid for and saved is done even if its file differs from the request: no run pays for it again.
  #checkFiles(planned: PlannedRow, job: Job | undefined, files: readonly JobFile[], isShown: boolean): void {
    const error = job && strictError(job, files);
    if (job === undefined || error === undefined) return;
    this.#differing += 1;
    const details = { reason: error.message, next: showCommand(job), isShown };
    if (this.#isStrict) this.#addRow(planned, { state: 'done', ...details });
  }

  // Suggests a limit that covers the rows over the budget and the rows not started.
  #withLimit(stopError: MgwError, limit: string | undefined, budget: string | undefined): MgwError {
    if (limit === undefined) return stopError;
    const rest = `rest of ${this.#repeat.selection === undefined ? 'the batch' : 'this retry'}`;
    if (budget === undefined) return withRaisedLimit(limit, stopError, rest);
    const text = `${stopError.message} For the ${rest}: --budget ${budget}.`;
    return stopError.with({ next: withBudget(this.#restCommand(), budget) }, text);
  }

  // Returns the command that runs the unpaid rows, and pays for no other row.
  #restCommand(): string[] {
    const ids = this.#unpaid.ids.flatMap((id) => ['--id', id]);
    const isById = this.#repeat.isById || this.#unpaid.isPaidAgain();
    return repeated(this.#repeat, ...((isById ? ids : this.#repeat.selection) ?? []));
  }

  // The error is about one row, but its "Nothing was charged" would seem to apply to the whole run.
  #withCharges(stopError: MgwError): MgwError {
    const [paidCount, doubtfulCount] = [this.#paidRows, this.#doubtfulRows];
    if (stopError.charged === 'yes' || paidCount + doubtfulCount === 0) return stopError;
    const texts = [
      ...(paidCount > 0 ? [`paid for ${counted(paidCount, 'row')} before that`] : []),
      ...(doubtfulCount > 0 ? [`may have paid for ${counted(doubtfulCount, 'row')} in doubt`] : []),
    ];
    const isPaidAgain = this.#unpaid.isPaidAgain();
    const advice = isPaidAgain
      ? 'Running the command again pays for those rows again. To run only the other rows, use --id.'
      : 'Running the command again does not pay for those rows again.';
    const text = `${stopError.message} This run ${texts.join(' and ')}. ${advice}`;
    const canResume = stopError.retry === 'safe' || stopError.charged === 'maybe';
    const retry = isPaidAgain ? 'never' : canResume ? 'resume' : stopError.retry;
    return stopError.with({ charged: paidCount > 0 ? 'yes' : 'maybe', retry, parts: 'rows' }, text);
  }

  #addCost(cost: string | undefined): void {
    if (cost === undefined) this.#unpriced += 1;
    else this.#spent = add(this.#spent ?? zero, parseDecimal(cost));
  }

  #addRow(planned: PlannedRow, unfinished: Omit<UnfinishedRow, 'line' | 'id' | 'label'>): void {
    const { row, id, because } = planned;
    const reason = printableLine(unfinished.reason, 300);
    this.#unfinished.push({ line: row.line, id, label: labelOf(planned), because, ...unfinished, reason });
  }

  #words(command: string[]): string {
    return commandText(command, this.#globals);
  }
}

function unfinishedText({ line, label, state, reason }: UnfinishedRow): string {
  return `line ${line}: ${label} ${state}${reason === '' ? '' : `: ${reason}`}`;
}

// Returns the reason why a row ended with an error.
function failureText(error: MgwError): string {
  return isOverBudget(error) ? 'over the budget' : error.message;
}
