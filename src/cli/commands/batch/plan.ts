import type { Command } from 'commander';
import { everyRow } from '../../../batch/choice.ts';
import { planBatch } from '../../../batch/plan.ts';
import type { PlannedRow } from '../../../batch/planned-row.ts';
import { needsFrame } from '../../../batch/work.ts';
import { checkFfmpeg } from '../../../flows/earlier-job.ts';
import type { Context } from '../../context.ts';
import {
  byLine,
  planView,
  refusal,
  type RowView,
  rowView,
  planText,
  tellProblems,
} from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { openNamed } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type BatchOptions } from './options.ts';
import { currencyOf } from '../../../flows/prices.ts';

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
  const rows: RowView[] = [];
  const told: PlannedRow[] = [];
  let needsFrames = false;
  const made = await planBatch(batch, await planDepsOf(context, batch), (planned) => {
    const isOpen = everyRow.toCarryOut(planned, planned.take.number) !== undefined;
    needsFrames ||= isOpen && planned.state !== 'running' && needsFrame(planned.work);
    const hasNews = planned.waitsFor !== undefined || planned.state !== 'new';
    if (context.globals.json) rows.push(rowView(planned));
    else if (hasNews && planned.state !== 'done') told.push(planned);
  });
  rows.sort(byLine);
  await tellProblems(context, file, made);
  if (needsFrames) await checkFfmpeg();
  const json = { ...planView(batch, made), rows };
  const text = planText(made, told, currencyOf(await context.settings()));
  return made.bad === 0 ? { json, text } : { json, text, error: refusal(made) };
}
