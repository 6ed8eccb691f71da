import type { Command } from 'commander';
import { planBatch } from '../../../batch/plan.ts';
import type { PlannedRow } from '../../../batch/planned-row.ts';
import type { Context } from '../../context.ts';
import { planView, refusal, rowView, planText, tellProblems } from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { openNamed } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type BatchOptions } from './options.ts';

const examples = `
Examples:
  $ mgw batch plan clips.csv
  $ mgw batch plan clips.csv --json
  $ mgw batch plan clips.csv -d protocol=c -d model=vendor-h3-mini -o clips/{id}.{ext}`;

/** `mgw batch plan FILE`: checks every row, and shows what would be done and what it would cost; nothing is sent. */
export function registerPlan(command: Command, run: Run): void {
  command.argument('<file>', 'the rows: .csv, .jsonl or .yaml; or the name of a batch that was run here');
  addBatchOptions(command);
  command
    .addHelpText('after', examples)
    .action((file: string) => run(command, (context) => plan(context, file, command.opts())));
}

async function plan(context: Context, given: string, options: BatchOptions): Promise<Outcome> {
  const { file, batch } = await openNamed(context, given, options);
  const rows: Record<string, unknown>[] = [];
  const told: PlannedRow[] = [];
  const made = await planBatch(batch, await planDepsOf(context, batch), (planned) => {
    if (context.globals.json) rows.push(rowView(planned));
    else if (planned.state !== 'new' && planned.state !== 'done') told.push(planned);
  });
  await tellProblems(context, file, made);
  const json = { ...planView(batch, made), rows };
  const text = planText(made, told);
  return made.bad === 0 ? { json, text } : { json, text, error: refusal(made) };
}
