import type { Command } from 'commander';
import { fleetStateOf, type Query } from '../../../batch/fleet/fleet-state.ts';
import type { QueueCounts } from '../../../batch/fleet/queued-row.ts';
import { type Batch, type Plan, planBatch } from '../../../batch/plan.ts';
import type { PlannedRow } from '../../../batch/planned-row.ts';
import { add, compare, excess, formatDecimal, zero } from '../../../decimal.ts';
import { exitCodes } from '../../../errors.ts';
import { withBudget } from '../../../flows/next.ts';
import type { Context } from '../../context.ts';
import { widthOf, wrap } from '../../help/wrap.ts';
import { columnsOf } from '../../io.ts';
import type { Globals } from '../../options.ts';
import { commandText } from '../../output/human.ts';
import { printableLine } from '../../../printable.ts';
import {
  byLine,
  nextOf,
  planView,
  type RowView,
  rowView,
  statesText,
  reportProblems,
} from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { lastBudget, openNamed } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type BatchOptions } from './options.ts';
import { remaindersFor } from './plan.ts';

const examples = `
Examples:
  $ mgw batch status clips.csv
  $ mgw batch status clips.csv --json
  $ mgw batch status clips.csv -o clips/{id}.{ext}`;

/** `mgw batch status NAME|FILE`: shows the state of every row according to the ledger. Does not query the gateway. */
export function registerBatchStatus(command: Command, run: Run): void {
  command.argument('<batch>', "the batch's file, or its name if it was run before");
  addBatchOptions(command);
  command
    .addHelpText('after', examples)
    .action((nameOrFile: string) => run(command, (context) => status(context, nameOrFile, command.opts())));
}

async function status(context: Context, nameOrFile: string, typedOptions: BatchOptions): Promise<Outcome> {
  const { file, batch: opened } = await openNamed(context, nameOrFile, typedOptions);
  const batch = { ...opened, force: true };
  const fleet = fleetStateOf(await context.ledger());
  const rows: RowView[] = [];
  const unfinished: PlannedRow[] = [];
  const deps = { ...(await planDepsOf(context, batch)), isAnywhere: fleet !== undefined };
  const plan = await planBatch(batch, deps, (planned) => {
    if (context.globals.json) rows.push({ ...rowView(planned), next: nextOf(planned, context.globals) });
    else if (planned.state !== 'done') unfinished.push(planned);
  });
  await reportProblems(context, file, plan);
  rows.sort(byLine);
  unfinished.sort((one, other) => one.row.line - other.row.line);
  const { batch: view, problems } = planView(batch, plan);
  const exitCode = plan.counts.done === plan.rows ? exitCodes.ok : exitCodes.partial;
  const queue = fleet && (await queueOf(fleet.query, batch.name));
  const budget = queue && queue.returned.length > 0 ? await neededBudget(context, batch, plan) : undefined;
  const text = [
    statesText(plan, unfinished, context.globals),
    ...(queue === undefined ? [] : [queueText(batch.name, queue, budget, context.globals)]),
  ];
  const width = columnsOf(context.io.stdout) ?? Infinity;
  return {
    json: { batch: view, problems, rows, queue },
    text: wrap(text.join('\n\n'), width, '  ', widthOf),
    exitCode,
  };
}

async function queueOf(query: Query, name: string): Promise<QueueCounts | undefined> {
  const { queueCounts } = await import('../../../batch/fleet/queued-row.ts');
  return queueCounts(query, name);
}

// Returns the budget that all unpaid rows need; undefined if the batch's budget suffices.
async function neededBudget(
  context: Context,
  { name, manifest }: Batch,
  plan: Plan,
): Promise<string | undefined> {
  const budget = (await lastBudget(context, name)) ?? manifest.head.budget;
  const remainder = budget === undefined ? undefined : (await remaindersFor(context, name, budget)).at(-1);
  if (remainder === undefined) return undefined;
  const missing = excess(plan.cost.known, remainder.remaining);
  return compare(missing, zero) > 0 ? formatDecimal(add(remainder.limit, missing)) : undefined;
}

function queueText(
  name: string,
  { waiting, taken, quarantined, returned, unpaid }: QueueCounts,
  budget: string | undefined,
  globals: Globals,
): string {
  const lines = (rows: QueueCounts['unpaid'], text: string): string[] =>
    rows.map(({ id, why }) => `${printableLine(id, 100)} ${text}: ${printableLine(why ?? 'no reason', 300)}`);
  const died = quarantined.map(({ id }) => ({ id, why: 'five workers died while running it' }));
  const again = withBudget(['mgw', 'batch', 'enqueue', name, '--again'], budget);
  return [
    `queue: ${waiting} waiting, ${taken} with workers, ${quarantined.length} quarantined, ${unpaid.length} ended unpaid`,
    ...lines(returned, 'returned to the queue'),
    ...lines(died, 'quarantined'),
    ...lines(unpaid, 'ended unpaid'),
    ...(died.length + unpaid.length === 0 && budget === undefined
      ? []
      : [`→ ${commandText(again, globals)}`]),
  ].join('\n');
}
