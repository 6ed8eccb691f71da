import { asField, problemText } from '../../batch/manifest/fields.ts';
import { type Batch, type Plan } from '../../batch/plan.ts';
import {
  existsText,
  isChangedInProgress,
  labelOf,
  type PlannedRow,
  kindOf,
  modelOf,
  retriedByKind,
  type RowState,
  rowStates,
} from '../../batch/planned-row.ts';
import { pathFor } from '../../batch/row-state.ts';
import { usageError, type MgwError } from '../../errors.ts';
import type { Job } from '../../job.ts';
import { printableLine } from '../../printable.ts';
import { commandWithGlobals } from '../../flows/next.ts';
import { resolveCommand, showCommand } from '../../jobs/errors.ts';
import { isUnaccepted, lostResponseText } from '../../jobs/reconcile.ts';
import { isObjectUrl } from '../../store-url.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../options.ts';
import { widthOf, wrap } from '../help/wrap.ts';
import { columnsOf, write } from '../io.ts';
import { shellWord } from './human.ts';
import { table } from './table.ts';

/** Prints a manifest's errors and notes on stderr. */
export async function reportProblems(context: Context, file: string, plan: Plan): Promise<void> {
  for (const problem of plan.repeated) context.progress.note(problemText(file, problem));
  const lines = plan.problems.map((problem) => `${printableLine(problemText(file, problem))}\n`);
  const width = columnsOf(context.io.stderr) ?? Infinity;
  await write(context.io.stderr, context.redact(wrap(lines.join(''), width, '  ', widthOf)));
}

/**
 * Returns a function that prints the advice about a row. Prints each piece of advice only once, with the line of the
 * first row.
 */
export function advicePrinter(
  { progress }: Context,
  file: string,
): (planned: Pick<PlannedRow, 'row' | 'work'>) => void {
  const printed = new Set<string>();
  return ({ row: { line }, work }) => {
    for (const message of work.advice) {
      if (!printed.has(message)) progress.note(problemText(file, { line, message: asField(message) }));
      printed.add(message);
    }
  };
}

/**
 * Builds the error for invalid rows (exit 2).
 * @param command the typed command. If all problems are unknown columns, `next` repeats the command with
 * `--ignore-columns`. If all problems are existing files, `next` repeats it with `--skip-bad`, or with a different
 * output if no row is valid.
 */
export function invalidRowsError({ bad, rows, problems }: Plan, command: readonly string[] = []): MgwError {
  const what = bad === 1 ? '1 row is invalid' : `${bad} rows are invalid`;
  const skip = command[1] === 'plan' ? 'run mgw batch run with' : 'use';
  const others = rows > bad ? ` To skip invalid rows, ${skip} --skip-bad.` : '';
  const flags = command.length === 0 ? undefined : correctionOf(problems, command, rows > bad);
  return usageError(`${what}.${others}`, flags ? ['mgw', ...command, ...flags] : ['mgw', 'help', 'batch']);
}

// Returns the flags that make the command accept the rows; undefined if there are none.
function correctionOf(
  problems: Plan['problems'],
  command: readonly string[],
  hasValidRows: boolean,
): string[] | undefined {
  const columns = problems.map(({ column }) => column);
  const names = columns.every((name) => name !== undefined && !name.includes(',')) ? columns.join(',') : '';
  if (names !== '') return ['--ignore-columns', names];
  if (!problems.every(({ message }) => message.endsWith(existsText))) return undefined;
  if (hasValidRows && command[1] !== 'plan') return ['--skip-bad'];
  return command.includes('-o') ? undefined : ['-o', '{name}/{id}.{ext}'];
}

/** Returns the JSON representation of a plan. */
export function planView(
  { manifest, name }: Pick<Batch, 'manifest' | 'name'>,
  plan: Plan,
): Record<string, unknown> {
  return {
    batch: { name, file: manifest.path, rows: plan.rows, states: plan.counts, bad: plan.bad },
    cost: {
      at_most: plan.cost.total,
      models: [...plan.costs].map(([model, { charges, total }]) => ({
        model,
        rows: charges,
        at_most: total,
      })),
    },
    problems: plan.problems,
    repeated: plan.repeated,
  };
}

/** A row in the JSON document. */
export type RowView = Record<string, unknown> & { line: number };

/** Compares rows by line for sorting, because rows that wait for others are planned last. */
export function byLine(one: RowView, other: RowView): number {
  return one.line - other.line;
}

/** Returns the JSON representation of a row. */
export function rowView(planned: PlannedRow): RowView {
  const { row, id, key, work, path, state, take, changes, waitsFor, because } = planned;
  return {
    line: row.line,
    id,
    ref: `@${key}`,
    protocol: kindOf(work),
    model: modelOf(work),
    state,
    output: path,
    job: take.job?.id,
    changes,
    waits_for: waitsFor,
    message: because && explainWaiting(planned),
    tags: row.tags.length > 0 ? row.tags : undefined,
  };
}

/** Formats the states of a plan's rows. `rows` are the unfinished rows. */
export function statesText(plan: Plan, rows: readonly PlannedRow[], globals: Globals): string {
  const lines = rows.map((row) => {
    const next = nextOf(row, globals);
    return next === undefined ? rowText(row) : `${rowText(row)} → ${next.map(shellWord).join(' ')}`;
  });
  return [stateTable(plan), ...(lines.length > 0 ? [lines.join('\n')] : [])].join('\n\n');
}

/** Returns the command that resolves a row in doubt, or saves the video of a changed row; undefined for other rows. */
export function nextOf(planned: PlannedRow, globals: Globals): string[] | undefined {
  const { state, take, path } = planned;
  if (take.job === undefined) return undefined;
  const isUnfinished = isChangedInProgress(planned);
  if (state !== 'unknown' && !isUnfinished) return undefined;
  const command = isUnfinished ? fetchTo(take.job, pathFor(path, take.job)) : resolveCommand(take.job);
  return commandWithGlobals(command, globals);
}

/** The batch command to repeat, with all its flags. Without `--budget`, for example, there would be no limit. */
export interface RepeatCommand {
  file: string;
  flags: readonly string[];
  /** The flags that `batch retry` uses to select rows; undefined for `batch run`. */
  selection?: readonly string[] | undefined;
  /** Whether the command selects its rows by `--id`. */
  isById?: boolean;
}

/** Returns the command for an unfinished row. `error` is the error that ended the row, if any. */
export function commandOf(
  { id, path, take, because, before, changes }: PlannedRow,
  state: RowState,
  repeat: RepeatCommand,
  error?: MgwError,
): string[] {
  if (state === 'blocked' && because?.problem !== undefined) return repeated(repeat, '--id', because.id);
  if (state === 'blocked' && because?.state !== undefined)
    return rowCommand(because.id, because.state, because.job, repeat);
  const job = error?.job ?? take.job;
  if (isChangedInProgress({ state, changes }) && job !== undefined)
    return isUnaccepted(job) ? showCommand(job) : fetchTo(job, pathFor(path, job));
  if (job?.state === 'succeeded') {
    // The row is paid for, but another file occupies the row's output path, or the stored object is missing.
    const object = job.files.find((file) => isObjectUrl(file.path))?.path;
    if (error?.code === 'output_exists') return [...fetchTo(job, pathFor(path, job)), '--force'];
    if (state === 'done' && object !== undefined) return fetchTo(job, object);
  }
  const isLost = error?.code === 'not_found' && error.charged === 'yes' && job?.state === 'succeeded';
  const isGone = isLost || error?.code === 'result_unavailable' || error?.code === 'speech_incomplete';
  // `batch run` does not continue a retry that was refused or never sent.
  const isUnpaidRetry = before !== undefined && (state === 'new' || state === 'rejected');
  if (isGone || (isUnpaidRetry && repeat.selection === undefined)) return repeated(repeat, '--id', id);
  // `batch retry --id` would pay again if it cannot save the result.
  const isUnsaved = repeat.selection !== undefined && error?.code === 'result_corrupt';
  return isUnsaved && job ? fetchTo(job, pathFor(path, job)) : rowCommand(id, state, job, repeat);
}

function fetchTo(job: Job, path: string): string[] {
  return ['mgw', 'jobs', 'fetch', job.id, '-o', path];
}

function rowCommand(id: string, state: RowState, job: Job | undefined, repeat: RepeatCommand): string[] {
  if (state === 'unknown' && job !== undefined) return resolveCommand(job);
  if (state === 'stale' && !repeat.isById) return repeated(repeat, '--stale');
  if (repeat.isById || state === 'failed' || state === 'changed') return repeated(repeat, '--id', id);
  // The same retry continues the rows that it began. `batch run` would also pay for rows that the retry did not select.
  return repeated(repeat, ...(repeat.selection ?? []));
}

/** Returns the command that runs the batch again, or that retries the rows that the given flags select. */
export function repeated({ file, flags }: RepeatCommand, ...selection: readonly string[]): string[] {
  return ['mgw', 'batch', selection.length === 0 ? 'run' : 'retry', file, ...flags, ...selection];
}

/** An unfinished row, and the command that continues it. */
interface OpenRow {
  id: string;
  state: RowState;
  next: string[];
  because?: PlannedRow['because'];
}

/**
 * Returns the commands for unfinished rows: one for all rows that failed, were changed or are stale, one for all rows
 * that another run or retry continues, and one for each row in doubt.
 */
export function commandsFor(rows: readonly OpenRow[], repeat: RepeatCommand): string[][] {
  const has = (rowState: RowState): boolean => rows.some(({ state }) => state === rowState);
  // A flag that the command did not have would also select paid rows outside the command's scope.
  const { selection, isById } = repeat;
  const isSelected = (state: RowState): boolean => !isById && (selection?.includes(`--${state}`) ?? true);
  const flags = retriedByKind.filter((state) => has(state) && isSelected(state)).map((state) => `--${state}`);
  const retried = rows.filter(({ state }) => retriedByKind.includes(state));
  const open = rows.filter(({ state }) => state !== 'blocked' && !retriedByKind.includes(state));
  const isOfRow = ({ id, next }: OpenRow): boolean => next.join() === repeated(repeat, '--id', id).join();
  const byId = [...retried.filter(({ state }) => !isSelected(state)), ...open.filter(isOfRow)];
  // A retry does not cover the row that blocks one of its rows, unless another command pays for that row.
  const paidIds = [...retried, ...byId].map(({ id }) => id);
  const blocked = rows.filter(({ state, because }) => state === 'blocked' && (selection || because?.problem));
  const commands = [
    ...(flags.length > 0 ? [repeated(repeat, ...(selection ?? flags))] : []),
    ...(byId.length > 0 ? [repeated(repeat, ...byId.flatMap(({ id }) => ['--id', id]))] : []),
    ...open.filter((row) => !isOfRow(row)).map(({ next }) => next),
    ...blocked.filter(({ next }) => !paidIds.includes(next.at(-1) ?? '')).map(({ next }) => next),
    ...(has('blocked') && !selection ? [repeated(repeat)] : []),
  ];
  return [...new Map(commands.map((command) => [command.join('\n'), command])).values()];
}

/** Whether an error reports that a submission would exceed a budget. */
export function isOverBudget({ budget }: MgwError): boolean {
  return budget?.exceeded_by !== undefined;
}

/** Formats a plan in lines of at most `width` columns; `rows` are the rows to report. */
export function planText(plan: Plan, rows: readonly PlannedRow[], currency: string, width: number): string {
  const costs = plan.costs.size > 0 ? costTable(plan, currency, width) : '';
  const rowTexts = rows
    .filter(({ state, changes }) => state !== 'done' && (state !== 'running' || changes !== undefined))
    .map((row) => wrap(rowText(row), width, '  ', widthOf));
  return [stateTable(plan), costs, rowTexts.join('\n')].filter(Boolean).join('\n\n');
}

function stateTable({ counts, bad }: Plan): string {
  const states = rowStates
    .filter((state) => counts[state] > 0)
    .map((state) => [state, String(counts[state])]);
  return table(['state', 'rows'], [...states, ...(bad > 0 ? [['bad', String(bad)]] : [])]);
}

function costTable({ cost, costs }: Plan, currency: string, width: number): string {
  const rows = [...costs].map(([model, { charges, total }]) => [model, String(charges), total]);
  const total = costs.size > 1 ? [['total', String(cost.charges), cost.total]] : [];
  return table(['to be paid for', 'rows', `${currency} at most`], [...rows, ...total], width);
}

/** Explains why a run skips a row; '' if the row's state is a sufficient explanation. */
export function explainSkipped(planned: PlannedRow): string {
  const { state, take, changes = [] } = planned;
  const { job } = take;
  const waitReason = explainWaiting(planned);
  if (waitReason !== undefined) return waitReason;
  const change = changes.length === 0 ? '' : `the row was changed: ${changes.join('; ')}`;
  if (state === 'changed' || state === 'running') return change;
  const loss = job === undefined ? 'the record of its job is lost or damaged' : lostResponseText(job);
  const reason = job?.error?.message ?? (state === 'unknown' ? loss : '');
  return [reason, change].filter(Boolean).join('; ');
}

// Explains which other row blocks a row or made it stale; undefined if there is none.
function explainWaiting({ state, waitsFor = [], because }: PlannedRow): string | undefined {
  if (because === undefined)
    return state === 'new' && waitsFor.length > 0 ? `after ${waitsFor.join(', ')}` : undefined;
  const id = printableLine(because.id, 100);
  if (state === 'stale') return `${id} was remade`;
  return because.problem ?? `it waits for ${id}, which is ${because.state ?? 'not valid'}`;
}

function rowText(planned: PlannedRow): string {
  const { row, state, changes = [], take } = planned;
  const job = take.job === undefined ? '' : ` (${take.job.id})`;
  const reason =
    explainWaiting(planned) ?? (changes.length > 0 ? changes.join('; ') : (take.job?.error?.message ?? ''));
  return printableLine(
    `line ${row.line}: ${labelOf(planned)} ${state}${job}${reason === '' ? '' : `: ${reason}`}`,
    500,
  );
}
