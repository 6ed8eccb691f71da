import { Pace } from '../../../batch/pace.ts';
import { everyRow, type Choice } from '../../../batch/choice.ts';
import type { Batch } from '../../../batch/plan.ts';
import type { RowEnd } from '../../../batch/run.ts';
import { readyRun, runBatch, type BatchWatcher, type ReadyRun } from '../../../batch/run-batch.ts';
import { exitCodeOfRun, stateAfter } from '../../../batch/tally.ts';
import { usageError } from '../../../errors.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { printableLine } from '../../../printable.ts';
import { payingDeps } from '../../../session/paying-deps.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { BatchDisplay } from '../../output/batch-display.ts';
import { openResults, type Results } from '../../output/batch-results.ts';
import { BatchReport } from '../../output/batch-report.ts';
import { planView, refusal, tellProblems } from '../../output/plan.ts';
import type { Outcome } from '../../output/outcome.ts';
import { version } from '../../../version.ts';
import { fileOf, remember } from './known.ts';
import { openBatch, planDepsOf } from './open.ts';
import type { RunBatchOptions } from './run-options.ts';

const defaultConcurrency = 4;

/**
 * Plans a batch and carries out the rows that a command is about.
 * @throws MgwError: exit 2 where a row cannot be carried out or the manifest cannot be read, 10 where nothing can be
 * recorded, as `context.jobDeps` does.
 */
export async function execute(
  context: Context,
  given: string,
  asked: RunBatchOptions,
  choice: Choice,
): Promise<Outcome> {
  const { file, options } = await fileOf(context, given, asked);
  const batch = await openBatch(file, options);
  const budget = options.budget ?? batch.manifest.head.budget;
  const deps = await payingDeps(context, 'batch', batch.name, { budget });
  const plan = await planDepsOf(context, batch, choice === everyRow ? 'known' : undefined);
  const report = new BatchReport(file, options, context.globals);
  const missing = new Set(choice.ids);
  const ready = await readyRun(batch, plan, choice, (planned, isChosen) => {
    missing.delete(planned.id);
    if (!isChosen) report.left(planned);
  });
  await tellProblems(context, file, ready.plan);
  const [stray] = missing;
  if (stray !== undefined)
    throw usageError(`--id: no row that can be carried out is called ${printableLine(stray, 100)}.`);
  if (ready.plan.bad > 0 && !options.skipBad)
    return { json: planView(batch, ready.plan), error: refusal(ready.plan) };
  await remember(context, batch, options);
  const results = options.results === undefined ? undefined : await openResults(options.results);
  const display = displayOf(context, ready, report);
  context.progress.giveWay();
  await display.start();
  try {
    const watcher = watcherOf(context, display, report, results);
    const runOptions = await runOptionsOf(context, batch, options, deps, display, choice);
    const stopped = await runBatch(batch, ready, choice, { plan, job: deps }, runOptions, watcher);
    display.stop();
    return await report.outcome(
      context,
      batch,
      ready,
      stopped,
      exitCodeOfRun(ready.tally, deps.signals.soft, stopped),
    );
  } finally {
    display.stop();
    await results?.close();
  }
}

function displayOf(context: Context, { tally }: ReadyRun, report: BatchReport): BatchDisplay {
  const { io, globals, clock } = context;
  const color = globals.color !== false && !io.env['NO_COLOR'];
  const shown = { stderr: io.stderr, env: io.env, quiet: globals.quiet ?? false, color, clock };
  return new BatchDisplay(shown, tally, () => report.money());
}

function watcherOf(
  context: Context,
  display: BatchDisplay,
  report: BatchReport,
  results: Results | undefined,
): BatchWatcher {
  const { io, globals } = context;
  const redact = (text: string): string => context.redact(text);
  return {
    began: (planned) => display.began(planned),
    updated: (planned, job) => display.updated(planned, job),
    note: (text) => {
      if (globals.verbose) display.note(redact(text));
    },
    left: (planned) => report.left(planned),
    ended: async (end: RowEnd) => {
      const state = stateAfter(end);
      report.ended(end, state);
      await results?.add(report.resultOf(end, state));
      display.ended(end.planned, state, redact(report.lineOf(end, state)));
      if (globals.json || end.files.length === 0) return;
      const paths = end.files.map(({ path }) => `${path}\n`).join('');
      let written = Promise.resolve();
      display.aside(() => {
        written = write(io.stdout, paths, 'yes');
      });
      await written;
    },
  };
}

async function runOptionsOf(
  context: Context,
  { manifest, force }: Batch,
  options: RunBatchOptions,
  { clock }: JobDeps,
  display: BatchDisplay,
  choice: Choice,
): Promise<Parameters<typeof runBatch>[4]> {
  const [{ pollIntervalMs: intervalMs, key }, settings] = await Promise.all([
    context.gateway(),
    context.settings(),
  ]);
  const pace = new Pace({
    concurrency: options.concurrency ?? Number(manifest.head.concurrency ?? defaultConcurrency),
    perMinute: options.perMinute,
    intervalMs,
    clock,
    onLimit: (limit) => display.note(`The gateway limits what it takes: ${limit} at once from now on.`),
  });
  return {
    pace,
    force,
    sidecar: options.sidecar ?? false,
    version,
    retake: (planned) => choice.retake(planned),
    intervalMs,
    key,
    timeoutMs: settings.timeoutMs.value,
    trustedOrigins: settings.trustedOrigins.value,
  };
}
