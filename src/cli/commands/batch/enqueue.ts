import { type Command, Option } from 'commander';
import type { Enqueued } from '../../../batch/fleet/enqueue.ts';
import { type Query, type FleetState, fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import type { QueuedHead } from '../../../batch/fleet/queued-row.ts';
import type { Batch } from '../../../batch/plan.ts';
import type { Run } from '../../command-tree.ts';
import { defaultConcurrency } from './run.ts';
import { budgetOf, type NamedBatch, openNamed, rememberOptions } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, type RunBatchOptions } from './options.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { advicePrinter, planView, invalidRowsError, reportProblems } from '../../output/plan.ts';
import { sidecarOption } from '../../wait-options.ts';
import { exitCodes, usageError } from '../../../errors.ts';
import { counted, printableLine } from '../../../printable.ts';

interface EnqueueOptions extends RunBatchOptions {
  again?: boolean;
}

const maxShown = 20;

const examples = `
Examples:
  $ mgw batch enqueue clips.csv
  $ mgw batch enqueue clips.csv --concurrency 10 --per-minute 120 --budget 50
  $ mgw batch enqueue clips --again
See mgw help fleet.`;

/** `mgw batch enqueue FILE`: queues the rows for `mgw worker`, on any machine with the same ledger. */
export function registerEnqueue(command: Command, run: Run): void {
  command.argument('<file>', "the manifest: .csv, .jsonl or .yaml; with --again, the batch's name");
  addBatchOptions(command);
  command
    .addOption(
      single(
        '--concurrency <n>',
        'maximum number of tasks in progress, across all workers (default 4)',
        wholeNumber(1, 10_000),
      ),
    )
    .addOption(
      single(
        '--per-minute <n>',
        'maximum number of submissions per minute, across all workers',
        wholeNumber(1, 1_000_000),
      ),
    )
    .option('--skip-bad', 'skip invalid rows')
    .addOption(new Option('--again', 'requeue quarantined rows, and rows that ended unpaid'))
    .addOption(sidecarOption());
  const [budget] = budgetOptions('this batch');
  if (budget !== undefined) command.addOption(budget);
  command
    .addHelpText('after', examples)
    .action((file: string) => run(command, (context) => enqueueBatch(context, file, command.opts())));
}

async function enqueueBatch(context: Context, nameOrFile: string, options: EnqueueOptions): Promise<Outcome> {
  const { query } = await fleetOf(context);
  if (options.output !== undefined)
    throw usageError('batch enqueue has no --output: each worker saves to its own -o.');
  const opened = await openNamed(context, nameOrFile, options);
  const { file, batch, isQueued } = opened;
  if (options.again) return requeue(context, query, batch.name, options.budget);
  if (isQueued) throw usageError(`The batch ${batch.name} is already enqueued. To add rows, use its file.`);
  const { checkRows, enqueue } = await import('../../../batch/fleet/enqueue.ts');
  const { storeCommand, sandbox } = await context.settings();
  const usesProgram = storeCommand.value !== undefined && !sandbox.value;
  const deps = { ...(await planDepsOf(context, batch, 'plan')), usesProgram };
  const checked = await checkRows(batch, deps, advicePrinter(context, file));
  await reportProblems(context, file, checked);
  if (checked.bad > 0 && !options.skipBad)
    return { json: planView(batch, checked), error: invalidRowsError(checked) };
  await rememberOptions(context, batch, opened.options);
  const head = await headOf(context, options, opened);
  const enqueued = await enqueue(batch, head, deps, query);
  noteChanged(context, file, batch, enqueued);
  return outcomeOf(context, batch, head, enqueued);
}

function outcomeOf(
  context: Context,
  batch: Batch,
  { concurrency }: QueuedHead,
  { plan, added, replaced, changed }: Enqueued,
): Outcome {
  const queuedBefore = plan.rows - plan.bad - added - replaced - changed.length;
  const parts = [
    `${added} enqueued`,
    ...(queuedBefore > 0 ? [`${queuedBefore} already in the queue`] : []),
    ...(replaced > 0 ? [`${replaced} replaced`] : []),
    ...(changed.length > 0 ? [`${changed.length} changed in the file; the queued version is kept`] : []),
    ...(plan.bad > 0 ? [`${plan.bad} skipped`] : []),
  ];
  context.progress.note(
    `${batch.name}: ${parts.join(', ')}; at most ${concurrency} in progress, across all workers.`,
  );
  const { batch: view, cost } = planView(batch, plan);
  const { rows, bad } = plan;
  const batchView = { ...(view as { name: string; file: string }), rows, bad, states: undefined };
  return {
    json: { batch: batchView, cost, enqueued: added, replaced, known: queuedBefore, changed },
    exitCode: changed.length + bad > 0 ? exitCodes.partial : exitCodes.ok,
  };
}

async function requeue(
  context: Context,
  query: Query,
  name: string,
  budget: string | undefined,
): Promise<Outcome> {
  const { requeueRows } = await import('../../../batch/fleet/queued-row.ts');
  const { setBatchBudget } = await import('../../../batch/fleet/row-queue.ts');
  if (budget !== undefined) await setBatchBudget(query, name, budget);
  const requeued = await requeueRows(query, name);
  context.progress.note(`${name}: ${counted(requeued, 'row')} requeued.`);
  return { json: { batch: { name }, again: requeued } };
}

/** Returns the shared ledger's database. @throws MgwError('usage') if the ledger is a folder on this machine. */
export async function fleetOf(context: Context): Promise<FleetState> {
  const fleet = fleetStateOf(await context.ledger());
  if (fleet !== undefined) return fleet;
  throw usageError(
    'A queue requires a shared ledger, but this ledger is a folder. Set MGW_STATE=postgres://USER@HOST/DATABASE, and run mgw state init.',
  );
}

async function headOf(
  context: Context,
  options: EnqueueOptions,
  opened: NamedBatch<EnqueueOptions>,
): Promise<QueuedHead> {
  const { head } = opened.batch.manifest;
  const { name: gateway } = await context.gateway();
  return {
    gateway,
    concurrency: options.concurrency ?? Number(head.concurrency ?? defaultConcurrency),
    perMinute: options.perMinute,
    budget: budgetOf(context, options, opened),
    sidecar: opened.options.sidecar,
  };
}

function noteChanged(context: Context, file: string, { name }: Batch, { changed }: Enqueued): void {
  for (const id of changed.slice(0, maxShown))
    context.progress.note(
      `${printableLine(id, 100)}: already in the queue with different content. The queued version is kept. To remake the row: mgw batch retry ${file} --name ${name} --id ${printableLine(id, 100)}`,
    );
  if (changed.length > maxShown) context.progress.note(`… and ${changed.length - maxShown} more.`);
}
