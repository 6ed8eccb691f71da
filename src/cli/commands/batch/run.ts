import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import { type RowSelection, everyRow } from '../../../batch/row-selection.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { problemsOf, problemText } from '../../../batch/manifest/fields.ts';
import type { Plan, PlanDeps } from '../../../batch/plan.ts';
import { type BatchWatcher, readyRun, type ReadyRun, runBatch } from '../../../batch/run-batch.ts';
import { exitCodeOfRun, stateAfter, type RowEnd } from '../../../batch/row-state.ts';
import { type NamedBatch, openNamed, rememberBudget, rememberOptions, withLastBudget } from './known.ts';
import { planDepsOf } from './open.ts';
import { addRunOptions, flagsAsTyped, type RunBatchOptions, runOptionsOf } from './options.ts';
import type { Context } from '../../context.ts';
import { isOneOutput, write } from '../../io.ts';
import { BatchDisplay, openResults, type Results } from '../../output/batch-display.ts';
import { BatchReport } from '../../output/batch-report.ts';
import type { Outcome } from '../../output/outcome.ts';
import { advicePrinter, planView, invalidRowsError, reportProblems } from '../../output/plan.ts';
import type { Signals } from '../../../payment/pay-once.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { isSameFile } from '../../../files/whole-file.ts';
import { withBudget } from '../../../flows/budgets.ts';
import { checkFfmpeg } from '../../../flows/ffmpeg.ts';
import { sameFileName } from '../../../jobs/output.ts';
import { listOf, printableLine } from '../../../printable.ts';
import { currencyOf } from '../../../flows/prices.ts';

const examples = `
Examples:
  $ mgw batch run clips.csv
  $ mgw batch run clips.csv --budget 50 -o clips/{id}.{ext}
  $ mgw batch run clips.csv -o clips/{id}.{ext} --concurrency 8 --results results.jsonl`;

/** `mgw batch run FILE`: submits, waits and saves. A rerun continues, and never pays twice for a row. */
export function registerRunBatch(command: Command, run: Run): void {
  command.argument('<file>', 'the manifest: .csv, .jsonl or .yaml');
  addRunOptions(command);
  command
    .addHelpText('after', examples)
    .action((file: string) => run(command, (context) => execute(context, file, command.opts(), everyRow)));
}

/**
 * Plans a batch, and runs the rows that a command selects.
 * @param selection the flags that `batch retry` uses to select rows; absent for `batch run`
 * @throws MgwError: exit 2 if a row is invalid or the manifest cannot be read, 10 if the ledger cannot be written (see
 * `context.jobDeps`).
 */
export async function execute(
  context: Context,
  nameOrFile: string,
  typedOptions: RunBatchOptions,
  choice: RowSelection,
  selection?: string[],
): Promise<Outcome> {
  const namedBatch = await openNamed(context, nameOrFile, typedOptions);
  const { file, batch, isQueued } = namedBatch;
  const options = await withLastBudget(context, namedBatch);
  const { budget = batch.manifest.head.budget } = options;
  const deps = await withBudget(await context.jobDeps(), 'batch', batch.name, budget);
  const plan = await planDepsOf(context, batch, choice === everyRow && !isQueued ? 'known' : undefined);
  const currency = currencyOf(await context.settings());
  const report = new BatchReport(file, options, context.globals, currency, choice, selection);
  const missing = new Set(choice.ids);
  const printAdvice = advicePrinter(context, file);
  const ready = await readyRun(batch, { plan, job: deps }, choice, (planned, isChosen) => {
    missing.delete(planned.id);
    if (isChosen) report.addChosen(planned, plan.costOf(planned.work));
    else report.addSkipped(planned);
    if (isChosen && planned.state !== 'running') printAdvice(planned);
  });
  await reportProblems(context, file, ready.plan);
  if (ready.plan.bad > 0 && !options.skipBad) {
    const typed = commandAsTyped(file, options, selection);
    return { json: planView(batch, ready.plan), error: invalidRowsError(ready.plan, typed) };
  }
  const [badId] = missing;
  if (badId !== undefined) throw usageError(`--id: no valid row has the id ${printableLine(badId, 100)}.`);
  if (ready.needsFrames) await checkFfmpeg();
  noteRemade(context, ready);
  const results = await openResultsFor(context, options.results, file, ready.plan);
  // A run that found only changed rows, for instance because of a wrong -d, must not change the options of later runs.
  const { chosen, counts } = ready.tally;
  if (chosen > 0 || counts.changed === 0) await rememberRun(context, namedBatch, typedOptions);
  const display = new BatchDisplay(context.displayOptions, ready.tally, () => report.money());
  context.progress.showNotesOnly();
  if (chosen > 0) await display.start();
  try {
    const watcher = watcherOf(context, file, display, report, { results, signals: deps.signals });
    const note = (text: string): void => display.note(context.redact(text));
    if (!isQueued) watcher.beforeRow = await queueUpdaterOf(batch.name, plan, note);
    const rows = await runOptionsOf(context, batch, options, (limit) =>
      note(`The gateway limits parallel tasks: at most ${limit} from now on.`),
    );
    const runOptions = { ...rows, nextRetry: choice.nextRetry };
    const stopError = await runBatch(batch, ready, choice, { plan, job: deps }, runOptions, watcher).finally(
      () => rows.pace.close(),
    );
    display.stop();
    const exitCode = exitCodeOfRun(ready.tally, deps.signals.soft, stopError);
    return await report.outcome(context, batch, ready, stopError, exitCode);
  } finally {
    display.stop();
    await results?.close();
  }
}

// Throws if the results would be written into the manifest or a row's output file.
async function openResultsFor(
  context: Context,
  path: string | undefined,
  file: string,
  plan: Plan,
): Promise<Results | undefined> {
  if (path === undefined) return undefined;
  const [results, manifest] = await Promise.all(
    [path, file].map((each) => stat(each, { bigint: true }).catch(() => undefined)),
  );
  const isManifest = results !== undefined && manifest !== undefined && isSameFile(results, manifest);
  const line = plan.paths.get(sameFileName(resolve(path)));
  if (!isManifest && line === undefined) return openResults(path, (text) => context.redact(text));
  const problem = isManifest ? "the batch's own file" : `the output of line ${line}`;
  throw new MgwError('usage', `--results: ${printableLine(path, 200)} is ${problem}.`, {
    correction: { flags: ['--results'], value: `${path}.results.jsonl` },
  });
}

async function rememberRun(
  context: Context,
  { batch, options, isQueued }: NamedBatch<RunBatchOptions>,
  typedOptions: RunBatchOptions,
): Promise<void> {
  await rememberBudget(context, batch.name, typedOptions);
  if (!isQueued) await rememberOptions(context, batch, options);
}

/** Returns the `beforeRow` of a run of a batch's file; see {@link queueUpdater}. */
export async function queueUpdaterOf(
  name: string,
  deps: PlanDeps,
  note: (text: string) => void,
): Promise<BatchWatcher['beforeRow']> {
  const fleet = fleetStateOf(deps.ledger);
  if (fleet === undefined) return undefined;
  const { queueUpdater } = await import('../../../batch/fleet/enqueue.ts');
  return queueUpdater(name, deps, fleet.query, note);
}

function commandAsTyped(file: string, options: RunBatchOptions, selection?: readonly string[]): string[] {
  const command = selection === undefined ? 'run' : 'retry';
  return ['batch', command, file, ...(selection ?? []), ...flagsAsTyped(options)];
}

// Reports rows with a result that will be remade, because the user may have selected them by mistake.
function noteRemade({ progress }: Context, { chosen }: ReadyRun): void {
  const ids = [...chosen.values()].flatMap(({ id, isPaid }) => (isPaid ? [printableLine(id, 100)] : []));
  if (ids.length === 0) return;
  progress.note(`Already paid for, but will be remade and paid for again: ${listOf(ids, maxNamed)}.`);
}

const maxNamed = 10;

function watcherOf(
  context: Context,
  file: string,
  display: BatchDisplay,
  report: BatchReport,
  { results, signals }: { results: Results | undefined; signals: Signals },
): BatchWatcher {
  const { io, globals } = context;
  const redact = (text: string): string => context.redact(text);
  const isOne = !globals.json && isOneOutput(io);
  return {
    began: (planned) => display.rowStarted(planned),
    updated: (planned, job) => display.rowUpdated(planned, job),
    note: (text) => {
      if (globals.verbose) display.note(redact(text));
    },
    skipped: (planned) => report.addSkipped(planned),
    bad: (row, error) => {
      for (const problem of problemsOf(row, error)) display.note(redact(problemText(file, problem)));
    },
    ended: async (end: RowEnd) => {
      const state = stateAfter(end);
      report.addEnded(end, state);
      // An interrupted row has no result yet, because the same command continues the row.
      const isInterrupted = signals.soft.aborted && (state === 'running' || state === 'new');
      if (!isInterrupted) await results?.add(report.resultLine(end, state));
      // If stdout and stderr are the same output, the printed path already shows that the row is done.
      const isAlreadyShown =
        isOne && state === 'done' && end.files.every(({ mismatches }) => mismatches === undefined);
      display.rowEnded(
        end.planned,
        state,
        isInterrupted || isAlreadyShown ? undefined : redact(report.logLine(end, state)),
      );
      if (globals.json || end.files.length === 0) return;
      const paths = end.files.map(({ path }) => `${path}\n`).join('');
      await display.withSpinnerHidden(() => write(io.stdout, paths, 'yes'));
    },
  };
}
