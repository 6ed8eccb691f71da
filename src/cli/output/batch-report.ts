import type { RowSelection } from '../../batch/row-selection.ts';
import type { Batch } from '../../batch/plan.ts';
import { labelOf, type PlannedRow, type RowState } from '../../batch/planned-row.ts';
import type { ReadyRun } from '../../batch/run-batch.ts';
import type { RowEnd } from '../../batch/row-state.ts';
import { flagsAsTyped, type RunBatchOptions } from '../commands/batch/options.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../options.ts';
import { stateCounts } from './batch-display.ts';
import { appendSummary, type Cell, markdownTable } from './github.ts';
import { shellWord } from './human.ts';
import { errorView, type Outcome } from './outcome.ts';
import {
  type RepeatCommand,
  commandOf,
  commandsFor,
  planView,
  rowView,
  explainSkipped,
  withBudget,
  isOverBudget,
  failureText,
} from './plan.ts';
import { add, type Decimal, excess, formatDecimal, max, parseDecimal, zero } from '../../decimal.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import { commandWithGlobals } from '../../flows/next.ts';
import { showCommand } from '../../jobs/errors.ts';
import { mismatchTexts, strictError } from '../../jobs/receipt.ts';
import { jobView } from '../../jobs/view.ts';
import type { Job, JobFile } from '../../job.ts';
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
  isOverBudget: boolean;
  /** Whether a line was printed when the row ended. */
  isShown: boolean;
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
  /** The cost of planned rows that any run has paid for, or may have paid for, since the plan was made. */
  #paidSincePlan = zero;
  #unpriced = 0;
  #paidRows = 0;
  /** The number of rows that this run sent without learning whether they were accepted. */
  #doubtfulRows = 0;
  /** The number of rows with a file that differs from the request. */
  #differing = 0;

  /** @param currency the currency name to print after amounts; not needed to report single rows */
  constructor(
    file: string,
    options: RunBatchOptions & Pick<RowSelection, 'ids'>,
    globals: Globals,
    currency = '',
  ) {
    this.#currency = currency;
    this.#repeat = { file, flags: flagsAsTyped(options), isById: options.ids !== undefined };
    this.#isStrict = options.strict ?? false;
    this.#globals = globals;
  }

  /** Reports a row that the run does not change. */
  addSkipped(planned: PlannedRow): void {
    const { state, take } = planned;
    if (state === 'done') {
      this.#checkFiles(planned, take.job, take.job?.files ?? [], false);
      return;
    }
    const next = commandOf(planned, state, this.#repeat);
    const reason = explainSkipped(planned);
    this.#addRow(planned, { state, reason, next, isOverBudget: false, isShown: false });
  }

  /** Reports a row that has ended. */
  addEnded(end: RowEnd, state: RowState): void {
    const { planned, job, files, isPaid, error } = end;
    const wasToBePaid = planned.state === 'new' || planned.state === 'rejected';
    const isAccepted = (job?.handle ?? error?.handle) !== undefined;
    const isInDoubt = state === 'unknown';
    if (wasToBePaid && (isAccepted || isInDoubt))
      this.#paidSincePlan = add(this.#paidSincePlan, parseDecimal(job?.cost?.at_most ?? '0'));
    if (isPaid) this.#paidRows += 1;
    else if (isInDoubt) this.#doubtfulRows += 1;
    if (isPaid || isInDoubt) this.#addCost(job?.cost?.at_most);
    if (error === undefined) {
      this.#checkFiles(planned, job, files, true);
      return;
    }
    const next = commandOf(planned, state, this.#repeat, error);
    const reason = failureText(error);
    this.#addRow(planned, { state, reason, next, isOverBudget: isOverBudget(error), isShown: true });
  }

  /** Returns a row's line for the `--results` file. */
  resultLine({ planned, job, files, ...end }: RowEnd, state: RowState): Record<string, unknown> {
    const error = end.error ?? this.#strictError(job, files);
    return {
      ...rowView({ ...planned, state }),
      exit_code: error?.exitCode ?? exitCodes.ok,
      job: job && jobView(job),
      files,
      error: error && errorView(error),
    };
  }

  /** Returns the log line of a row that has ended. */
  logLine({ planned, files, error }: RowEnd, state: RowState): string {
    const failure = error === undefined ? undefined : failureText(error);
    const text = failure ?? files.map((file) => [file.path, ...mismatchTexts(file)].join(', ')).join(', ');
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
    const parts = [
      `${batch.name}: ${[...stateCounts(tally.counts), ...bad].join(', ') || 'no rows'}`,
      `${counted(tally.files, 'file')} saved`,
    ];
    const summary = `${[...parts, ...(this.money() === '' ? [] : [this.money()])].join('; ')}.`;
    context.progress.note(summary);
    const limit = neededLimit(stopError, excess(plan.cost.known, this.#paidSincePlan));
    const budget = stopError?.budget?.name.startsWith('batch ') ? limit : undefined;
    const unfinished = this.#unfinished
      .sort((one, other) => one.line - other.line)
      .map((row) => (row.isOverBudget ? { ...row, next: withBudget(row.next, budget) } : row));
    // Omits rows over the budget, because the run's error reports the budget that they need.
    const reportable =
      stopError?.budget === undefined ? unfinished : unfinished.filter((row) => !row.isOverBudget);
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
    for (const command of commandsFor(reportable, this.#repeat).slice(0, maxShown))
      context.progress.note(`→ ${this.#words(command)}`);
    if (tally.files > 0)
      context.progress.note(
        `To view the results: ${this.#words(['mgw', 'jobs', 'gallery', '--batch', batch.name, '--serve'])}`,
      );
    await this.#stepSummary(context, summary, unfinished);
    const view = planView(batch, plan);
    return {
      json: {
        batch: { ...(view['batch'] as object), rows: tally.rows, states: tally.counts, files: tally.files },
        problems: view['problems'],
        rows: unfinished.map(unfinishedView),
      },
      ...(stopError !== undefined &&
        exitCode !== exitCodes.ok && {
          error: this.#withCharges(this.#withLimit(stopError, limit, budget)).with(
            exitCode === exitCodes.partial ? { exit: 'partial' } : {},
          ),
        }),
      exitCode: exitCode === exitCodes.ok && unfinished.length > 0 ? exitCodes.partial : exitCode,
    };
  }

  // A row that is paid for and saved is done even if its file differs from the request: no run pays for it again.
  #checkFiles(planned: PlannedRow, job: Job | undefined, files: readonly JobFile[], isShown: boolean): void {
    if (files.some(({ mismatches }) => mismatches !== undefined)) this.#differing += 1;
    const error = this.#strictError(job, files);
    if (job === undefined || error === undefined) return;
    const entry = {
      state: 'done',
      reason: error.message,
      next: showCommand(job),
      isOverBudget: false,
    } as const;
    this.#addRow(planned, { ...entry, isShown });
  }

  #strictError(job: Job | undefined, files: readonly JobFile[]): MgwError | undefined {
    return this.#isStrict && job !== undefined ? strictError(job, files) : undefined;
  }

  // Suggests a limit that covers the rows over the budget and the rows not started.
  #withLimit(stopError: MgwError, limit: string | undefined, budget: string | undefined): MgwError {
    if (limit === undefined) return stopError;
    if (budget === undefined) return raisedTo(limit, stopError);
    const overBudget = this.#unfinished.filter(({ isOverBudget }) => isOverBudget);
    const [command] = commandsFor(overBudget, this.#repeat);
    const text = `${stopError.message} For the rest of the batch: --budget ${budget}.`;
    return stopError.with(command === undefined ? {} : { next: withBudget(command, budget) }, text);
  }

  // The error is about one row, but its "Nothing was charged" would read as true of the whole run.
  #withCharges(stopError: MgwError): MgwError {
    const [paid, doubtful] = [this.#paidRows, this.#doubtfulRows];
    if (stopError.charged !== 'no' || paid + doubtful === 0) return stopError;
    const texts = [
      ...(paid > 0 ? [`paid for ${counted(paid, 'row')} before that`] : []),
      ...(doubtful > 0 ? [`may have paid for ${counted(doubtful, 'row')} in doubt`] : []),
    ];
    // `batch retry --id` remakes a row even if it is done.
    const advice = this.#repeat.isById
      ? 'Running the command again pays for those rows again: use --id only for the other rows.'
      : 'Running the command again does not pay for those rows again.';
    const text = `${stopError.message} This run ${texts.join(' and ')}. ${advice}`;
    const retry = this.#repeat.isById ? 'never' : stopError.retry === 'safe' ? 'resume' : stopError.retry;
    return stopError.with({ charged: paid > 0 ? 'yes' : 'maybe', retry, parts: 'rows' }, text);
  }

  #addCost(cost: string | undefined): void {
    if (cost === undefined) this.#unpriced += 1;
    else this.#spent = add(this.#spent ?? zero, parseDecimal(cost));
  }

  #addRow(planned: PlannedRow, unfinished: Omit<UnfinishedRow, 'line' | 'id' | 'label'>): void {
    const { row, id } = planned;
    const reason = printableLine(unfinished.reason, 300);
    this.#unfinished.push({ line: row.line, id, label: labelOf(planned), ...unfinished, reason });
  }

  #words(command: string[]): string {
    return commandWithGlobals(command, this.#globals).map(shellWord).join(' ');
  }

  async #stepSummary(context: Context, summary: string, unfinished: readonly UnfinishedRow[]): Promise<void> {
    const rows = unfinished
      .slice(0, maxShown)
      .map(({ id, state, reason, next }) => [id, state, reason, next.map(shellWord).join(' ')]);
    const head = ['row', 'state', 'reason', 'next'];
    const lines = (cell: Cell): string[] => [
      cell(summary),
      ...(rows.length === 0 ? [] : ['', ...markdownTable(head, rows, cell)]),
    ];
    await appendSummary('mgw batch', lines, context);
  }
}

/**
 * Returns the budget limit that the rest of a batch needs; undefined if the error is not about a budget's limit.
 * @param cost the highest possible cost of the rows that are not paid for
 */
export function neededLimit(error: MgwError | undefined, cost: Decimal): string | undefined {
  const { limit, spent, reserved, exceeded_by: missing } = error?.budget ?? {};
  if (limit === undefined || missing === undefined) return undefined;
  const committed = [spent, reserved].reduce((sum, part) => add(sum, parseDecimal(part ?? '0')), zero);
  return formatDecimal(max(add(parseDecimal(limit), parseDecimal(missing)), add(committed, cost)));
}

/** Returns a budget's error with the given limit in the command that raises the budget. */
export function raisedTo(limit: string, error: MgwError): MgwError {
  const { message, next = [] } = error;
  // mgw budget set NAME AMOUNT, or mgw batch enqueue NAME --again --budget AMOUNT
  const at = next.includes('--budget') ? next.indexOf('--budget') + 1 : 4;
  const raise = [...next.slice(0, at), limit, ...next.slice(at + 1)];
  return error.with({ next: raise }, `${message} The rest of the batch needs a limit of ${limit}.`);
}

function unfinishedView({ line, id, state, reason, next }: UnfinishedRow): Record<string, unknown> {
  return { line, id, state, next, message: reason };
}

function unfinishedText({ line, label, state, reason }: UnfinishedRow): string {
  return `line ${line}: ${label} ${state}${reason === '' ? '' : `: ${reason}`}`;
}
