import { type Command, Option } from 'commander';
import type { Enqueued } from '../../../batch/fleet/enqueue.ts';
import { type Query, type FleetState, fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import type { QueuedHead } from '../../../batch/fleet/queued-row.ts';
import type { Batch } from '../../../batch/plan.ts';
import type { Run } from '../../command-tree.ts';
import { lastBudget, type NamedBatch, openNamed, rememberBudget, rememberOptions } from './known.ts';
import { planDepsOf } from './open.ts';
import { addBatchOptions, defaultConcurrency, flagsAsTyped, type RunBatchOptions } from './options.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, single, wholeNumber } from '../../options.ts';
import { shellWord } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import { advicePrinter, planView, invalidRowsError, reportProblems } from '../../output/plan.ts';
import { sidecarOption } from '../../wait-options.ts';
import { exitCodes, usageError } from '../../../errors.ts';
import { counted, listOf, printableLine } from '../../../printable.ts';

interface EnqueueOptions extends RunBatchOptions {
  again?: boolean;
  removeMissing?: boolean;
}

const maxShown = 20;
const maxNamed = 10;

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
    .addOption(
      new Option(
        '--again',
        'requeue rows that are delayed, quarantined, ended unpaid or unsaved, or whose job was removed',
      ),
    )
    .option('--remove-missing', 'remove unpaid rows from the queue that are not in the file')
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
  if (options.again && options.removeMissing)
    throw usageError('--remove-missing cannot be combined with --again, which does not read the file.');
  const namedBatch = await openNamed(context, nameOrFile, options);
  const { file, batch, isQueued } = namedBatch;
  if (options.again) return requeueBatch(context, query, batch.name, options);
  if (isQueued) throw usageError(`The batch ${batch.name} is already enqueued. To add rows, use its file.`);
  const { checkRows, enqueue } = await import('../../../batch/fleet/enqueue.ts');
  const { storeCommand, sandbox } = await context.settings();
  const usesProgram = storeCommand.value !== undefined && !sandbox.value;
  const runCommand = ['mgw', 'batch', 'run', file, ...flagsAsTyped(options)];
  const deps = { ...(await planDepsOf(context, batch)), usesProgram, runCommand };
  const printAdvice = advicePrinter(context, file);
  const ids: string[] = [];
  const checked = await checkRows(batch, deps, (planned) => {
    ids.push(planned.id);
    printAdvice(planned);
  });
  await reportProblems(context, file, checked);
  if (checked.bad > 0 && !options.skipBad)
    return { json: planView(batch, checked), error: invalidRowsError(checked) };
  const { addBatch, changeBatch } = await import('../../../batch/fleet/row-queue.ts');
  const { removeMissing: removesMissing = false } = options;
  const { head, overrides } = await headsOf(context, options, namedBatch);
  // Throws if the batch is enqueued for a different gateway. Until then, nothing may be recorded for it.
  const queuedHead = await addBatch(query, { name: batch.name, head });
  await rememberOptions(context, batch, namedBatch.options);
  await rememberBudget(context, batch.name, options);
  await changeBatch(query, batch.name, overrides);
  const enqueued = await enqueue(batch, { ids, removesMissing }, deps, query);
  noteChanged(context, file, namedBatch.options, batch, enqueued);
  noteMissing(context, file, batch, enqueued, options);
  return outcomeOf(context, namedBatch, enqueued, { ...queuedHead, ...overrides });
}

function outcomeOf(
  context: Context,
  { batch, isRerun }: NamedBatch<EnqueueOptions>,
  { plan, added, replaced, changed, missing, removed }: Enqueued,
  { concurrency, budget }: QueuedHead,
): Outcome {
  const queuedBefore = plan.rows - plan.bad - added - replaced - changed.length;
  const parts = [
    `${added} enqueued`,
    ...(queuedBefore > 0 ? [`${queuedBefore} already in the queue`] : []),
    ...(replaced > 0 ? [`${replaced} replaced`] : []),
    ...(changed.length > 0 ? [`${changed.length} changed in the file (the queued version is kept)`] : []),
    ...(removed > 0 ? [`${removed} removed`] : []),
    ...(plan.bad > 0 ? [`${plan.bad} skipped`] : []),
  ];
  context.progress.note(
    `${batch.name}: ${parts.join(', ')}; at most ${concurrency} in progress${budget === undefined ? '' : `, budget ${budget}`}, across all workers.`,
  );
  const { batch: view, cost } = planView(batch, plan);
  const { rows, bad } = plan;
  const batchView = { ...(view as { name: string; file: string }), rows, bad, states: undefined };
  return {
    json: {
      batch: batchView,
      cost,
      enqueued: added,
      replaced,
      known: queuedBefore,
      changed,
      missing,
      removed,
    },
    // Several files may be enqueued under one name, so missing rows are a problem only if this file was edited.
    exitCode: changed.length + bad > 0 || (isRerun && missing.length > 0) ? exitCodes.partial : exitCodes.ok,
  };
}

async function requeueBatch(
  context: Context,
  query: Query,
  name: string,
  options: EnqueueOptions,
): Promise<Outcome> {
  const { requeue } = await import('../../../batch/fleet/enqueue.ts');
  const { changeBatch } = await import('../../../batch/fleet/row-queue.ts');
  await rememberBudget(context, name, options);
  await changeBatch(query, name, typedHead(options));
  const requeued = await requeue(query, name, { ledger: await context.ledger() });
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

// Returns the options of a new batch, and those to change if the batch is already in the queue: those of the command
// line and of the file. The budget of the last run replaces the file's, as in `batch run`.
async function headsOf(
  context: Context,
  options: EnqueueOptions,
  opened: NamedBatch<EnqueueOptions>,
): Promise<{ head: QueuedHead; overrides: Partial<QueuedHead> }> {
  const { concurrency, budget: budgetOfFile } = opened.batch.manifest.head;
  const budget = options.budget ?? (await lastBudget(context, opened.batch.name)) ?? budgetOfFile;
  const { name: gateway } = await context.gateway();
  const overrides = {
    ...(concurrency !== undefined && { concurrency: Number(concurrency) }),
    ...typedHead({ ...options, budget }),
  };
  const { sidecar } = opened.options;
  return { head: { gateway, concurrency: defaultConcurrency, sidecar, ...overrides }, overrides };
}

function typedHead({ concurrency, perMinute, budget, sidecar }: EnqueueOptions): Partial<QueuedHead> {
  return {
    ...(concurrency !== undefined && { concurrency }),
    ...(perMinute !== undefined && { perMinute }),
    ...(budget !== undefined && { budget }),
    ...(sidecar !== undefined && { sidecar }),
  };
}

function noteChanged(
  context: Context,
  file: string,
  { format }: EnqueueOptions,
  { name }: Batch,
  { changed }: Enqueued,
): void {
  const flags = [...(format === undefined ? [] : ['--format', format]), '--name', name];
  for (const id of changed.slice(0, maxShown)) {
    const command = ['mgw', 'batch', 'retry', file, ...flags, '--id', printableLine(id, 100)];
    context.progress.note(
      `${printableLine(id, 100)}: already in the queue with different content. The queued version is kept. To remake the row: ${command.map(shellWord).join(' ')}`,
    );
  }
  if (changed.length > maxShown) context.progress.note(`… and ${changed.length - maxShown} more.`);
}

function noteMissing(
  context: Context,
  file: string,
  { name }: Batch,
  { missing, plan }: Enqueued,
  options: EnqueueOptions,
): void {
  if (missing.length === 0) return;
  const rows = missing.length === 1 ? 'waiting row is' : 'waiting rows are';
  const ids = missing.map((id) => printableLine(id, 100));
  const command = [
    'mgw',
    'batch',
    'enqueue',
    file,
    '--remove-missing',
    ...flagsAsTyped({ ...options, name }),
  ];
  context.progress.note(
    `${missing.length} ${rows} not ${plan.bad > 0 ? 'valid rows of' : 'in'} ${printableLine(file, 200)}, but workers will pay for them: ${listOf(ids, maxNamed)}. To remove them from the queue: ${command.map(shellWord).join(' ')}`,
  );
}
