import { Option, type Command } from 'commander';
import type { QueuedBatch } from '../../batch/fleet/row-queue.ts';
import type { OpenedBatch } from '../../batch/fleet/queued-row.ts';
import { planBatch } from '../../batch/plan.ts';
import { parseDuration } from '../../clock.ts';
import type { Decimal } from '../../decimal.ts';
import { isPerRow } from '../../jobs/output.ts';
import { printableLine } from '../../printable.ts';
import { exitCodes, type MgwError, usageError } from '../../errors.ts';
import type { JobDeps } from '../../jobs/order.ts';
import { withBudget } from '../../flows/budgets.ts';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { outputOption, single, wholeNumber } from '../options.ts';
import type { Outcome } from '../output/outcome.ts';
import { neededLimit, withRaisedLimit } from '../../payment/reserve.ts';
import { isOverBudget } from '../output/plan.ts';
import { WorkerReport } from '../output/worker-report.ts';
import { addWaitOptions, markOption, sidecarOption } from '../wait-options.ts';
import { fleetOf } from './batch/enqueue.ts';
import { lastBudget } from './batch/known.ts';
import { batchOf, placeOf, planDepsOf } from './batch/open.ts';
import {
  defaultConcurrency,
  paceOf,
  resultsOption,
  rowOptionsOf,
  type RunBatchOptions,
  strictRowsOption,
} from './batch/options.ts';

interface WorkerOptions extends RunBatchOptions {
  maxIdle?: number;
  grace?: number;
  healthFile?: string;
}

const defaultGraceMs = 25_000;

const examples = `
Examples:
  $ mgw worker -o /clips/{name}/{id}.{ext}
  $ mgw worker -o out/{name}/{id}.{ext} --max-idle 5m --concurrency 8
  $ mgw worker -o /clips/{name}/{id}.{ext} --health-file /tmp/mgw-alive
See mgw help fleet.`;

/** `mgw worker`: runs the rows of all enqueued batches. */
export function registerWorker(command: Command, run: Run): void {
  command
    .addOption(
      outputOption(
        '-o, --output <template>',
        'where to save files on this machine, such as /clips/{name}/{id}.{ext} (required)',
      ),
    )
    .addOption(new Option('--force', 'overwrite files that do not belong to the batch').helpGroup('Output:'))
    .addOption(sidecarOption())
    .addOption(strictRowsOption())
    .addOption(markOption())
    .addOption(resultsOption())
    .addOption(
      single(
        '--concurrency <n>',
        'maximum number of rows in progress on this worker (default 4)',
        wholeNumber(1, 10_000),
      ),
    )
    .addOption(
      single('--max-idle <duration>', 'exit after this long without work, such as 5m', parseDuration),
    )
    .addOption(
      single(
        '--grace <duration>',
        'how long to wait for outstanding responses after SIGTERM (default 25s)',
        parseDuration,
      ),
    )
    .addOption(
      single('--health-file <file>', 'update this file at least every 10 s while the queue responds'),
    );
  addWaitOptions(command, 'time limit for each row, such as 90s or 20m (default 30m)');
  command
    .addHelpText('after', examples)
    .action(() => run(command, (context) => runWorker(context, command.opts())));
}

async function runWorker(context: Context, { output, ...others }: WorkerOptions): Promise<Outcome> {
  const fleet = await fleetOf(context);
  if (output === undefined)
    throw usageError('-o is required, such as: mgw worker -o clips/{name}/{id}.{ext}');
  // Queued rows have no extra columns, so a template field with an unknown name has no value.
  if (!isPerRow(placeOf(output, false).template))
    throw usageError(
      `--output: ${printableLine(output, 200)} specifies one file for all rows. Add a field such as {id}, or end the path with / to specify a folder.`,
    );
  const options = { ...others, output };
  const [{ RowQueue }, { Worker }, gateway, deps] = await Promise.all([
    import('../../batch/fleet/row-queue.ts'),
    import('../../batch/fleet/worker.ts'),
    context.gateway(),
    context.jobDeps(),
  ]);
  const signals = withGrace(deps, options.grace ?? defaultGraceMs);
  const report = await WorkerReport.open(context, options);
  const noteLimit = limitNotes(context);
  const costs: RestCosts = new Map();
  try {
    const worker = new Worker(
      {
        queue: new RowQueue(fleet, (text) => context.progress.note(text)),
        gateway: gateway.name,
        concurrency: options.concurrency ?? defaultConcurrency,
        maxIdleMs: options.maxIdle,
        clock: context.clock,
        signal: signals.soft,
        open: (queued) => openQueued(context, queued, options, signals, noteLimit, costs),
      },
      report,
    );
    const stopError = await worker.run();
    const { soft } = signals;
    const signalExitCode = soft.reason === 'SIGTERM' ? exitCodes.terminated : exitCodes.interrupted;
    return report.outcome(stopError, soft.aborted ? signalExitCode : undefined);
  } finally {
    signals.close();
    await report.close();
  }
}

// The results of `restCost`, by batch and limit. A long queue must not be planned again at each retry.
type RestCosts = Map<string, ReturnType<typeof restCost>>;

async function openQueued(
  context: Context,
  { name, head }: QueuedBatch,
  { output, force = false, mark, sidecar = head.sidecar ?? false }: WorkerOptions & { output: string },
  signals: JobDeps['signals'],
  noteLimit: NoteLimit,
  costs: RestCosts,
): Promise<OpenedBatch> {
  const { concurrency, perMinute } = head;
  const budget = (await lastBudget(context, name)) ?? head.budget;
  const manifest = { path: name, head: {}, defaults: [], items: noItems };
  const batch = batchOf(manifest, name, { output, force });
  const plan = await planDepsOf(context, batch);
  const raiseCommand = ['mgw', 'batch', 'enqueue', name, '--again', '--budget'];
  const job = {
    ...(await withBudget(await context.jobDeps(), 'batch', name, budget, raiseCommand)),
    signals,
  };
  const rows = await rowOptionsOf(context, { force, sidecar, mark });
  const onLimit = (limit: number): void => noteLimit(name, limit, concurrency);
  const pace = await paceOf(context, name, { concurrency, perMinute, onLimit });
  const withNeededLimit = async (error: MgwError): Promise<MgwError> => {
    if (!isOverBudget(error)) return error;
    const key = `${name} ${error.budget?.limit}`;
    const reading = costs.get(key) ?? restCost(context, name, output).catch(() => undefined);
    costs.set(key, reading);
    const cost = await reading;
    const limit = cost && neededLimit(error, cost);
    return limit === undefined ? error : withRaisedLimit(limit, error);
  };
  return { batch, plan, job, options: { ...rows, pace }, withNeededLimit };
}

// Returns the highest possible cost of the rows in the queue that are not paid for.
async function restCost(context: Context, name: string, output: string): Promise<Decimal | undefined> {
  const { queuedManifest } = await import('../../batch/fleet/queued-row.ts');
  const manifest = await queuedManifest((await fleetOf(context)).query, name);
  if (manifest === undefined) return undefined;
  const batch = batchOf(manifest, name, { output });
  return (await planBatch(batch, await planDepsOf(context, batch), () => undefined)).cost.known;
}

type NoteLimit = (batch: string, limit: number, concurrency: number) => void;

// Reports when the gateway starts and stops limiting a batch, but not each change of the limit.
function limitNotes({ progress }: Context): NoteLimit {
  const limited = new Set<string>();
  return (batch, limit, concurrency) => {
    const isLimited = limit < concurrency;
    if (isLimited === limited.has(batch)) return;
    if (isLimited) limited.add(batch);
    else limited.delete(batch);
    progress.note(
      isLimited
        ? `${batch}: the gateway limits parallel tasks: at most ${limit} in progress for now.`
        : `${batch}: the gateway accepts ${limit} parallel tasks again.`,
    );
  };
}

// Yields no items, because a worker claims rows from the queue one by one.
// eslint-disable-next-line @typescript-eslint/require-await
async function* noItems(): AsyncGenerator<never> {
  yield* [];
}

// Returns signals that abort outstanding requests after the grace period, so that their submissions are recorded as
// unknown before the process is killed.
function withGrace(
  { signals: { soft, hard }, clock }: JobDeps,
  graceMs: number,
): JobDeps['signals'] & { close: () => void } {
  const graceOver = new AbortController();
  const closing = new AbortController();
  const giveUp = (): void => graceOver.abort(soft.reason);
  hard.addEventListener('abort', giveUp, { once: true });
  const wait = (): void => void clock.sleep(graceMs, closing.signal).then(giveUp, () => undefined);
  soft.addEventListener('abort', wait, { once: true });
  return { soft, hard: graceOver.signal, close: () => closing.abort() };
}
