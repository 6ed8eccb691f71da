import type { Command } from 'commander';
import { planBatch } from '../../../batch/plan.ts';
import type { PlannedRow } from '../../../batch/planned-row.ts';
import { exitCodes } from '../../../errors.ts';
import type { Context } from '../../context.ts';
import { planView, rowView, statesText, tellProblems } from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { fileOf } from './known.ts';
import { openBatch, planDepsOf } from './open.ts';
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
  const { file, options } = await fileOf(context, given, asked);
  const batch = { ...(await openBatch(file, options)), force: true };
  const rows: Record<string, unknown>[] = [];
  const undone: PlannedRow[] = [];
  const plan = await planBatch(batch, await planDepsOf(context, batch), (planned) => {
    if (context.globals.json) rows.push(rowView(planned));
    else if (planned.state !== 'done') undone.push(planned);
  });
  await tellProblems(context, file, plan);
  const { batch: view, problems } = planView(batch, plan);
  const exitCode = plan.counts.done === plan.rows ? exitCodes.ok : exitCodes.partial;
  return { json: { batch: view, problems, rows }, text: statesText(plan, undone), exitCode };
}
