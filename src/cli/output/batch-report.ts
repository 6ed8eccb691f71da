import type { RowSelection } from '../../batch/row-selection.ts';
import type { Batch, Plan } from '../../batch/plan.ts';
import { labelOf, type PlannedRow, type RowState, rowStates } from '../../batch/planned-row.ts';
import type { ReadyRun } from '../../batch/run-batch.ts';
import type { RowEnd } from '../../batch/row-state.ts';
import { flagsAsTyped, type RunBatchOptions } from '../commands/batch/options.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../options.ts';
import { appendSummary, type Cell, markdownTable } from './github.ts';
import { shellWord } from './human.ts';
import { errorView, type Outcome } from './outcome.ts';
import { type Again, commandOf, commandsFor, planView, rowView, whyLeft } from './plan.ts';
import { add, compare, type Decimal, formatDecimal, parseDecimal, subtract, zero } from '../../decimal.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import { globalArguments } from '../../flows/next.ts';
import { showCommand } from '../../jobs/errors.ts';
import { mismatchTexts, strictError } from '../../jobs/receipt.ts';
import { jobView } from '../../jobs/view.ts';
import type { Job, JobFile } from '../../job.ts';
import { counted, printableLine } from '../../printable.ts';

/** A row that is not done, and the command for it. */
interface Undone {
  line: number;
  id: string;
  /** The text to show in place of a generated id. */
  label: string;
  state: RowState;
  why: string;
  next: string[];
  isOverBudget: boolean;
  /** Whether a line was printed already when the row ended. */
  isTold: boolean;
}

const maxShown = 20;

/** Reports on the rows of a run as they end, and on the run at its end. */
export class BatchReport {
  readonly #again: Again;
  readonly #isStrict: boolean;
  readonly #globals: Globals;
  readonly #currency: string;
  readonly #undone: Undone[] = [];
  /** The amount spent so far; undefined until a row with a known price has been paid for. */
  #spent: Decimal | undefined;
  /** The cost of rows of the plan that were paid for since, by this run or another. */
  #settled = zero;
  #unpriced = 0;
  #paidRows = 0;
  /** The number of rows with a file that differs from the request. */
  #differing = 0;

  /** @param currency the name of the currency */
  constructor(
    file: string,
    typed: RunBatchOptions & Pick<RowSelection, 'ids'>,
    globals: Globals,
    currency: string,
  ) {
    this.#currency = currency;
    this.#again = { file, flags: flagsAsTyped(typed), isById: typed.ids !== undefined };
    this.#isStrict = typed.strict ?? false;
    this.#globals = globals;
  }

  /** Reports that a row is left as it is. */
  left(planned: PlannedRow): void {
    const { state, take } = planned;
    if (state === 'done') {
      this.#judge(planned, take.job, take.job?.files ?? [], false);
      return;
    }
    const next = commandOf(planned, state, this.#again);
    this.#add(planned, { state, why: whyLeft(planned), next, isOverBudget: false, isTold: false });
  }

  /** Reports that a row has ended. */
  ended(end: RowEnd, state: RowState): void {
    const { planned, job, files, isPaid, error } = end;
    const wasToBePaid = planned.state === 'new' || planned.state === 'rejected';
    const isAccepted = (job?.handle ?? error?.handle) !== undefined;
    if (wasToBePaid && isAccepted)
      this.#settled = add(this.#settled, parseDecimal(job?.cost?.at_most ?? '0'));
    if (isPaid) {
      this.#paidRows += 1;
      this.#pay(job?.cost?.at_most);
    }
    if (error === undefined) {
      this.#judge(planned, job, files, true);
      return;
    }
    const next = commandOf(planned, state, this.#again, error);
    this.#add(planned, { state, why: whyEnded(error), next, isOverBudget: exceeds(error), isTold: true });
  }

  /** Returns a row's line of `--results`. */
  resultOf({ planned, job, files, ...end }: RowEnd, state: RowState): Record<string, unknown> {
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
  lineOf({ planned, files, error }: RowEnd, state: RowState): string {
    const what = error === undefined ? undefined : whyEnded(error);
    const text = what ?? files.map((file) => [file.path, ...mismatchTexts(file)].join(', ')).join(', ');
    return printableLine(`${labelOf(planned)} ${state}: ${text}`, 500);
  }

  /** Returns the command for a row that is not done. */
  toType({ planned, error }: RowEnd, state: RowState): string {
    return this.#words(commandOf(planned, state, this.#again, error));
  }

  /** Describes the amount spent so far; '' if it is unknown. */
  money(): string {
    if (this.#spent === undefined) return '';
    return `at most ${formatDecimal(this.#spent)} ${this.#currency} spent${this.#unpriced > 0 ? ' on rows with a known price' : ''}`;
  }

  /** Returns the report on the run. */
  async outcome(
    context: Context,
    batch: Batch,
    { plan, tally }: ReadyRun,
    stopped: MgwError | undefined,
    exitCode: number,
  ): Promise<Outcome> {
    const states = rowStates.filter((state) => tally.counts[state] > 0);
    const counts = states.map((state) => `${tally.counts[state]} ${state}`);
    const bad = tally.bad > 0 ? [`${tally.bad} left out`] : [];
    const parts = [
      `${batch.name}: ${[...counts, ...bad].join(', ') || 'no rows'}`,
      `${counted(tally.files, 'file')} saved`,
    ];
    const summary = `${[...parts, ...(this.money() === '' ? [] : [this.money()])].join('; ')}.`;
    context.progress.note(summary);
    const budget = this.#neededBudget(plan, stopped);
    const undone = this.#undone
      .sort((one, other) => one.line - other.line)
      .map((row) => (row.isOverBudget ? { ...row, next: withBudget(row.next, budget) } : row));
    // Leaves out rows over the budget, because the error names the amount that the budget lacks.
    const shown = stopped?.budget === undefined ? undone : undone.filter((row) => !row.isOverBudget);
    if (this.#differing > 0)
      context.progress.note(
        `${this.#differing} of them ${this.#differing === 1 ? 'differs' : 'differ'} from the request: ${this.#words(['mgw', 'jobs', 'ls', '--mismatched', '--batch', batch.name])}`,
      );
    const untold = shown.filter(({ isTold }) => !isTold);
    for (const row of untold.slice(0, maxShown)) context.progress.note(undoneText(row));
    if (untold.length > maxShown)
      context.progress.note(
        `… and ${untold.length - maxShown} more: mgw batch status ${shellWord(this.#again.file)}`,
      );
    for (const command of commandsFor(shown, this.#again).slice(0, maxShown))
      context.progress.note(`→ ${this.#words(command)}`);
    if (tally.files > 0)
      context.progress.note(
        `To view the results: ${this.#words(['mgw', 'jobs', 'gallery', '--batch', batch.name, '--serve'])}`,
      );
    await this.#stepSummary(context, summary, undone);
    const view = planView(batch, plan);
    return {
      json: {
        batch: { ...(view['batch'] as object), rows: tally.rows, states: tally.counts, files: tally.files },
        problems: view['problems'],
        rows: undone.map(({ line, id, state, why, next }) => ({ line, id, state, next, message: why })),
      },
      ...(stopped !== undefined &&
        exitCode !== exitCodes.ok && {
          error: this.#withCharges(this.#withBudget(stopped, budget)).with(
            exitCode === exitCodes.partial ? { exit: 'partial' } : {},
          ),
        }),
      exitCode: exitCode === exitCodes.ok && undone.length > 0 ? exitCodes.partial : exitCode,
    };
  }

  // A row that is paid for and saved is done even if its file differs from the request: no run pays for it again.
  #judge(planned: PlannedRow, job: Job | undefined, files: readonly JobFile[], isTold: boolean): void {
    if (files.some(({ mismatches }) => mismatches !== undefined)) this.#differing += 1;
    const error = this.#strictError(job, files);
    if (job === undefined || error === undefined) return;
    const told = { state: 'done', why: error.message, next: showCommand(job), isOverBudget: false } as const;
    this.#add(planned, { ...told, isTold });
  }

  #strictError(job: Job | undefined, files: readonly JobFile[]): MgwError | undefined {
    return this.#isStrict && job !== undefined ? strictError(job, files) : undefined;
  }

  // Names the command with the budget that suffices for the rows that were over the budget, and for those not begun.
  #withBudget(stopped: MgwError, budget: string | undefined): MgwError {
    if (budget === undefined) return stopped;
    const over = this.#undone.filter(({ isOverBudget }) => isOverBudget);
    const [command] = commandsFor(over, this.#again);
    const next = command === undefined ? stopped.next : withBudget(command, budget);
    return stopped.with({ next }, `${stopped.message} For the rest of the batch: --budget ${budget}.`);
  }

  // The error concerns one row, but its "Nothing was charged" would seem to concern the whole run.
  #withCharges(stopped: MgwError): MgwError {
    if (stopped.charged !== 'no') return stopped;
    const hasDoubt = this.#undone.some(({ state, isTold }) => isTold && state === 'unknown');
    if (this.#paidRows === 0) return hasDoubt ? stopped.with({ charged: 'maybe' }) : stopped;
    const rows = counted(this.#paidRows, 'row');
    const text = `${stopped.message} This run paid for ${rows} before that; running it again does not pay for them again.`;
    return stopped.with({ charged: 'yes', parts: 'rows' }, text);
  }

  #pay(cost: string | undefined): void {
    if (cost === undefined) this.#unpriced += 1;
    else this.#spent = add(this.#spent ?? zero, parseDecimal(cost));
  }

  #add(planned: PlannedRow, undone: Omit<Undone, 'line' | 'id' | 'label'>): void {
    const { row, id } = planned;
    const why = printableLine(undone.why, 300);
    this.#undone.push({ line: row.line, id, label: labelOf(planned), ...undone, why });
  }

  // Returns the `--budget` that the rest of the batch needs at most; undefined unless that budget stopped the run.
  #neededBudget({ costs }: Plan, stopped: MgwError | undefined): string | undefined {
    const { name, limit, spent, reserved, exceeded_by: excess } = stopped?.budget ?? {};
    if (limit === undefined || excess === undefined || !name?.startsWith('batch ')) return undefined;
    const before = [spent, reserved].reduce((sum, part) => add(sum, parseDecimal(part ?? '0')), zero);
    const whole = [...costs.values()].reduce((sum, { known }) => add(sum, known), before);
    const [one, all] = [add(parseDecimal(limit), parseDecimal(excess)), subtract(whole, this.#settled)];
    return formatDecimal(compare(one, all) < 0 ? all : one);
  }

  #words([mgw = 'mgw', ...rest]: string[]): string {
    return [mgw, ...globalArguments(this.#globals).flat(), ...rest].map(shellWord).join(' ');
  }

  async #stepSummary(context: Context, summary: string, undone: readonly Undone[]): Promise<void> {
    const rows = undone
      .slice(0, maxShown)
      .map(({ id, state, why, next }) => [id, state, why, next.map(shellWord).join(' ')]);
    const head = ['row', 'state', 'why', 'next'];
    const lines = (cell: Cell): string[] => [
      cell(summary),
      ...(rows.length === 0 ? [] : ['', ...markdownTable(head, rows, cell)]),
    ];
    const { io, progress } = context;
    await appendSummary('mgw batch', lines, {
      env: io.env,
      redact: (text) => context.redact(text),
      note: (text) => progress.note(text),
    });
  }
}

function exceeds({ budget }: MgwError): boolean {
  return budget?.exceeded_by !== undefined;
}

function whyEnded(error: MgwError): string {
  return exceeds(error) ? 'over the budget' : error.message;
}

function withBudget(words: readonly string[], amount: string | undefined): string[] {
  if (amount === undefined) return [...words];
  const at = words.indexOf('--budget');
  if (at === -1) return [...words, '--budget', amount];
  return [...words.slice(0, at + 1), amount, ...words.slice(at + 2)];
}

function undoneText({ line, label, state, why }: Undone): string {
  return `line ${line}: ${label} ${state}${why === '' ? '' : `: ${why}`}`;
}
