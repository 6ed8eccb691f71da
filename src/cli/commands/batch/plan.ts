import type { Command } from 'commander';
import { everyRow } from '../../../batch/row-selection.ts';
import { planBatch } from '../../../batch/plan.ts';
import { type PlannedRow, fieldOf, needsFrame } from '../../../batch/planned-row.ts';
import { checkFfmpeg } from '../../../flows/ffmpeg.ts';
import type { Context } from '../../context.ts';
import { columnsOf } from '../../io.ts';
import {
  advicePrinter,
  byLine,
  planView,
  invalidRowsError,
  type RowView,
  rowView,
  planText,
  reportProblems,
} from '../../output/plan.ts';
import { add, compare, type Decimal, excess, formatDecimal, parseAmount, zero } from '../../../decimal.ts';
import { budgetState } from '../../../flows/budgets.ts';
import { costOutsideBudget } from '../../../flows/spend.ts';
import type { BudgetState, Limit } from '../../../budget/budget.ts';
import { budgetOptions, type BudgetOptions } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { noteOtherFile, openNamed, withLastBudget } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type BatchOptions, flagsAsTyped } from './options.ts';
import { currencyOf, priceOf } from '../../../flows/prices.ts';

const examples = `
Examples:
  $ mgw batch plan clips.csv
  $ mgw batch plan clips.csv --json
  $ mgw batch plan clips.csv -d protocol=c -d model=vendor-h3-mini -o clips/{id}.{ext}`;

/** `mgw batch plan FILE`: checks every row, and shows what a run would do and cost. Sends nothing. */
export function registerPlan(command: Command, run: Run): void {
  command.argument('<file>', 'the manifest: .csv, .jsonl or .yaml; or the name of a batch that was run here');
  addBatchOptions(command);
  for (const option of budgetOptions('this batch')) command.addOption(option);
  command
    .addHelpText('after', examples)
    .action((file: string) => run(command, (context) => plan(context, file, command.opts())));
}

async function plan(
  context: Context,
  nameOrFile: string,
  options: BatchOptions & BudgetOptions,
): Promise<Outcome> {
  const namedBatch = await openNamed(context, nameOrFile, options);
  const { file, batch } = namedBatch;
  if (!namedBatch.isQueued) await noteOtherFile(context, batch);
  const rows: RowView[] = [];
  const reportedRows: PlannedRow[] = [];
  let needsFrames = false;
  const printAdvice = advicePrinter(context, file);
  const result = await planBatch(batch, await planDepsOf(context, batch), (planned) => {
    if (planned.state !== 'done' && planned.state !== 'running') printAdvice(planned);
    const isOpen = everyRow.rowToRun(planned, planned.take.number) !== undefined;
    needsFrames ||= isOpen && planned.state !== 'running' && needsFrame(planned.work);
    const isNotable = planned.waitsFor !== undefined || planned.state !== 'new';
    if (context.globals.json) rows.push({ ...rowView(planned), prompt: fieldOf(planned.work, 'prompt') });
    else if (isNotable && planned.state !== 'done') reportedRows.push(planned);
  });
  rows.sort(byLine);
  await reportProblems(context, file, result);
  if (needsFrames) await checkFfmpeg();
  const cost = result.cost.known;
  const { budget = batch.manifest.head.budget } = await withLastBudget(context, namedBatch);
  const remainders = compare(cost, zero) > 0 ? await remaindersFor(context, batch.name, budget) : [];
  const exceeded = remainders.filter(({ remaining }) => compare(cost, remaining) > 0);
  const currency = currencyOf(await context.settings());
  for (const { label, limit, remaining } of exceeded)
    context.progress.note(
      `This may cost up to ${formatDecimal(cost)} ${currency}, more than ${label} allows: ${formatDecimal(remaining)} of ${formatDecimal(limit)} left. A run stops at the limit.`,
    );
  const json = {
    ...planView(batch, result),
    ...(exceeded.length > 0 && {
      exceeded: exceeded.map(({ label, limit, remaining }) => ({
        budget: label,
        limit: formatDecimal(limit),
        left: formatDecimal(remaining),
      })),
    }),
    rows,
  };
  const text = planText(result, reportedRows, currency, columnsOf(context.io.stdout) ?? Infinity);
  return result.bad === 0
    ? { json, text }
    : { json, text, error: invalidRowsError(result, ['batch', 'plan', file, ...flagsAsTyped(options)]) };
}

// A budget's remaining amount.
interface Remainder {
  label: string;
  limit: Decimal;
  remaining: Decimal;
}

/**
 * Returns the remaining amount of each budget that would limit a batch. These are the standing budget and, if `amount`
 * is set, the batch's own budget. Creates no budget.
 * @throws MgwError('local_io') if a budget cannot be read.
 */
export async function remaindersFor(
  session: Parameters<typeof budgetState>[0] & Pick<Context, 'ledger'>,
  batch: string,
  amount: string | undefined,
): Promise<Remainder[]> {
  const settings = await session.settings();
  const remainders: Remainder[] = [];
  const addRemainder = (label: string, { amount: limit }: Limit, { spent, reserved }: BudgetState): void => {
    remainders.push({ label, limit, remaining: excess(limit, add(spent, reserved)) });
  };
  const name = settings.budget.value;
  const standingBudget = name === undefined ? undefined : await budgetState(session, 'standing', name);
  if (standingBudget?.limit !== undefined)
    addRemainder(`the budget ${name}`, standingBudget.limit, standingBudget);
  if (amount !== undefined) {
    const { spent, reserved } = await budgetState(session, 'batch', batch);
    const outside = await costOutsideBudget(batch, {
      ledger: await session.ledger(),
      priceOf: (order) => Promise.resolve(priceOf(order, settings)),
    });
    addRemainder(
      `the budget of the batch ${batch}`,
      { amount: parseAmount(amount) },
      { spent: add(spent, outside), reserved },
    );
  }
  return remainders;
}
