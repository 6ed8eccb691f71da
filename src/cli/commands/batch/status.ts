import type { Command } from 'commander';
import { sharedDatabase, type Database } from '../../../batch/fleet/database.ts';
import type { Standings } from '../../../batch/fleet/queued-manifest.ts';
import { planBatch } from '../../../batch/plan.ts';
import type { PlannedRow } from '../../../batch/planned-row.ts';
import { exitCodes } from '../../../errors.ts';
import type { Context } from '../../context.ts';
import { printableLine } from '../../../printable.ts';
import { planView, rowView, statesText, tellProblems } from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { openNamed } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type BatchOptions } from './options.ts';

const examples = `
Examples:
  $ mgw batch status clips.csv
  $ mgw batch status clips.csv --json
  $ mgw batch status clips.csv -o clips/{id}.{ext}`;

/** `mgw batch status NAME|FILE`: where every row stands by the ledger; no task is asked for. */
export function registerBatchStatus(command: Command, run: Run): void {
  command.argument('<batch>', 'its file, or its name where it was run before');
  addBatchOptions(command);
  command
    .addHelpText('after', examples)
    .action((given: string) => run(command, (context) => status(context, given, command.opts())));
}

async function status(context: Context, given: string, asked: BatchOptions): Promise<Outcome> {
  const { file, batch: opened } = await openNamed(context, given, asked);
  const batch = { ...opened, force: true };
  const database = sharedDatabase(await context.ledger());
  const rows: Record<string, unknown>[] = [];
  const undone: PlannedRow[] = [];
  const deps = { ...(await planDepsOf(context, batch)), isAnywhere: database !== undefined };
  const plan = await planBatch(batch, deps, (planned) => {
    if (context.globals.json) rows.push(rowView(planned));
    else if (planned.state !== 'done') undone.push(planned);
  });
  await tellProblems(context, file, plan);
  const { batch: view, problems } = planView(batch, plan);
  const exitCode = plan.counts.done === plan.rows ? exitCodes.ok : exitCodes.partial;
  const queue = database && (await queueOf(database, batch.name));
  const text = [statesText(plan, undone), ...(queue === undefined ? [] : [queueText(batch.name, queue)])];
  return { json: { batch: view, problems, rows, queue }, text: text.join('\n\n'), exitCode };
}

async function queueOf(database: Database, name: string): Promise<Standings | undefined> {
  const { standings } = await import('../../../batch/fleet/queued-manifest.ts');
  return standings(database, name);
}

function queueText(name: string, { waiting, taken, aside }: Standings): string {
  const rows = aside.map(({ id }) => `${printableLine(id, 100)} set aside: two workers did not survive it`);
  const again = aside.length === 0 ? [] : [`→ mgw batch enqueue ${name} --again`];
  return [
    `queue: ${waiting} waiting, ${taken} with workers, ${aside.length} set aside`,
    ...rows,
    ...again,
  ].join('\n');
}
