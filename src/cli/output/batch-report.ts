import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Batch } from '../../batch/plan.ts';
import type { PlannedRow } from '../../batch/planned-row.ts';
import { type RowState, rowStates } from '../../batch/row-state.ts';
import type { ReadyRun } from '../../batch/run-batch.ts';
import type { RowEnd } from '../../batch/run.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../globals.ts';
import { appendSummary, cell, markdownTable } from './github.ts';
import { shellWord } from './human.ts';
import { errorView, type Outcome } from './outcome.ts';
import { planView, rowView } from './plan.ts';
import { add, type Decimal, formatDecimal, parseDecimal, zero } from '../../decimal.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import { localError } from '../../files/local-error.ts';
import { globalArguments } from '../../flows/next.ts';
import { resolveCommand } from '../../jobs/errors.ts';
import { jobView } from '../../jobs/view.ts';
import { escapeControls, printableLine } from '../../printable.ts';
import { withoutSignatures } from '../../redact.ts';

/** A row that is not done, and what to type. */
interface Undone {
  line: number;
  id: string;
  state: RowState;
  why: string;
  next: string[];
}

/** The flags of the command line that the next command needs too: a cap that was left out would be no cap. */
interface Typed {
  output?: string;
  default?: string[];
  name?: string;
  force?: boolean;
  sidecar?: boolean;
  concurrency?: number;
  perMinute?: number;
  budget?: string;
  budgetName?: string;
}

const maxShown = 20;

/** What a run has to tell at its end, and of each row as it ends. */
export class BatchReport {
  readonly #file: string;
  readonly #typed: Typed;
  readonly #globals: Globals;
  readonly #undone: Undone[] = [];
  /** Undefined until something was paid for at a price that is known. */
  #spent: Decimal | undefined;
  #unpriced = 0;
  #paidRows = 0;

  constructor(file: string, typed: Typed, globals: Globals) {
    this.#file = file;
    this.#typed = typed;
    this.#globals = globals;
  }

  /** A row is left alone. */
  left(planned: PlannedRow): void {
    const { state } = planned;
    if (state !== 'done') this.#add(planned, state, whyLeft(planned), this.#nextOf(planned, state));
  }

  /** A row has ended. */
  ended(end: RowEnd, state: RowState): void {
    const { planned, job, error } = end;
    const wasToBePaid = planned.state === 'new' || planned.state === 'rejected';
    if (wasToBePaid && (job?.handle ?? error?.handle) !== undefined) {
      this.#paidRows += 1;
      this.#pay(job?.cost?.at_most);
    }
    if (error !== undefined) this.#add(planned, state, error.message, this.#nextOf(planned, state, error));
  }

  /** A row's line of `--results`. */
  resultOf({ planned, job, files, error }: RowEnd, state: RowState): Record<string, unknown> {
    return {
      ...rowView({ ...planned, state }),
      exit_code: error?.exitCode ?? exitCodes.ok,
      job: job && jobView(job),
      files,
      error: error && errorView(error),
    };
  }

  /** A row's end as a line of a log. */
  lineOf({ planned, files, error }: RowEnd, state: RowState): string {
    const what = error?.message ?? files.map(({ path }) => path).join(', ');
    return printableLine(`${planned.id} ${state}: ${what}`, 500);
  }

  /** What to type for a row that is not done. */
  toType({ planned, error }: RowEnd, state: RowState): string {
    return this.#words(this.#nextOf(planned, state, error));
  }

  /** What was spent so far, in words; '' if nothing is known of it. */
  money(): string {
    if (this.#spent === undefined) return '';
    return `at most ${formatDecimal(this.#spent)} spent${this.#unpriced > 0 ? ' where a price is known' : ''}`;
  }

  /** All that is to be told of the run. */
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
      `${tally.files} ${tally.files === 1 ? 'file' : 'files'} saved`,
    ];
    const summary = `${[...parts, ...(this.money() === '' ? [] : [this.money()])].join('; ')}.`;
    context.progress.note(summary);
    const undone = this.#undone.sort((one, other) => one.line - other.line);
    for (const row of undone.slice(0, maxShown)) context.progress.note(this.#undoneText(row));
    if (undone.length > maxShown)
      context.progress.note(
        `… and ${undone.length - maxShown} more: mgw batch status ${shellWord(this.#file)}`,
      );
    await this.#stepSummary(context, summary, undone);
    const view = planView(batch, plan);
    return {
      json: {
        batch: { ...(view['batch'] as object), rows: tally.rows, states: tally.counts, files: tally.files },
        problems: view['problems'],
        rows: undone.map(({ why, ...row }) => ({ ...row, message: why })),
      },
      ...(stopped !== undefined && exitCode !== exitCodes.ok && { error: this.#withCharges(stopped) }),
      exitCode,
    };
  }

  // The error is about one row, but its "Nothing was charged" would be read as about the run.
  #withCharges(stopped: MgwError): MgwError {
    if (this.#paidRows === 0 || stopped.charged !== 'no') return stopped;
    const rows = this.#paidRows === 1 ? '1 row' : `${this.#paidRows} rows`;
    const text = `${stopped.message} This run paid for ${rows} before; running it again pays for none of them again.`;
    return stopped.with({ charged: 'yes' }, text);
  }

  #pay(cost: string | undefined): void {
    if (cost === undefined) this.#unpriced += 1;
    else this.#spent = add(this.#spent ?? zero, parseDecimal(cost));
  }

  #add({ row, id }: PlannedRow, state: RowState, why: string, next: string[]): void {
    this.#undone.push({ line: row.line, id, state, why: printableLine(why, 300), next });
  }

  #nextOf({ id, take }: PlannedRow, state: RowState, error?: MgwError): string[] {
    const job = error?.job ?? take.job;
    if (state === 'unknown' && job !== undefined) return resolveCommand(job);
    const isOver = state === 'failed' || state === 'changed' || error?.exitCode === exitCodes.incomplete;
    if (isOver) return ['mgw', 'batch', 'retry', this.#file, ...this.#flags(), '--id', id];
    return ['mgw', 'batch', 'run', this.#file, ...this.#flags()];
  }

  #flags(): string[] {
    const { default: fields = [], force, sidecar, ...typed } = this.#typed;
    const given = (flag: string, value: string | number | undefined): string[] =>
      value === undefined ? [] : [flag, String(value)];
    return [
      ...fields.flatMap((field) => ['-d', field]),
      ...given('--name', typed.name),
      ...given('--concurrency', typed.concurrency),
      ...given('--per-minute', typed.perMinute),
      ...given('-o', typed.output),
      ...(force ? ['--force'] : []),
      ...(sidecar ? ['--sidecar'] : []),
      ...given('--budget', typed.budget),
      ...given('--budget-name', typed.budgetName),
    ];
  }

  #undoneText({ line, id, state, why, next }: Undone): string {
    return `line ${line}: ${id} ${state}${why === '' ? '' : `: ${why}`} → ${this.#words(next)}`;
  }

  #words([mgw = 'mgw', ...rest]: string[]): string {
    return [mgw, ...globalArguments(this.#globals).flat(), ...rest].map(shellWord).join(' ');
  }

  async #stepSummary(context: Context, summary: string, undone: readonly Undone[]): Promise<void> {
    const rows = undone
      .slice(0, maxShown)
      .map(({ id, state, why, next }) => [id, state, why, next.map(shellWord).join(' ')]);
    const lines = rows.length === 0 ? [] : ['', ...markdownTable(['row', 'state', 'why', 'next'], rows)];
    const { io, progress } = context;
    await appendSummary('mgw batch', [cell(summary), ...lines], {
      env: io.env,
      redact: (text) => context.redact(text),
      note: (text) => progress.note(text),
    });
  }
}

function whyLeft({ state, take: { job }, changes = [] }: PlannedRow): string {
  if (changes.length > 0) return `it was changed: ${changes.join('; ')}`;
  if (job?.error !== undefined || state !== 'unknown') return job?.error?.message ?? '';
  return job === undefined
    ? 'the record of its job is lost or damaged'
    : 'its process ended before the answer came';
}

/** A file that takes a line of JSON for each row as it ends. */
export interface Results {
  /** Returns when the line is on disk. @throws MgwError('local_io'). */
  add(result: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the file of `--results`, which only the owner can read; lines are added to those that are there. `redact` takes the key out
 * of a line, and no address in it is signed.
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
