import { type Command, Option } from 'commander';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { type Format, formatNames } from '../../../batch/manifest/manifest.ts';
import { LocalPace, type Pace, type PaceOptions } from '../../../batch/pace.ts';
import type { Batch } from '../../../batch/plan.ts';
import type { RunOptions } from '../../../batch/row-runner.ts';
import { isObjectUrl, isUrl, tildeProblem } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import {
  budgetOptions,
  type BudgetOptions,
  outputOption,
  repeatable,
  single,
  wholeNumber,
} from '../../options.ts';
import { addWaitOptions, markOption, sidecarOption, strictOption } from '../../wait-options.ts';

/** Options shared by the batch commands. */
export interface BatchOptions {
  /** A template such as `clips/{id}.{ext}`. */
  output?: string;
  default?: string[];
  name?: string;
  force?: boolean;
  /** Folders with files that rows may use, in addition to the manifest's folder and the current folder. */
  allowFiles?: string[];
  /** Comma-separated names of columns to ignore, because they are not fields. */
  ignoreColumns?: string[] | undefined;
  format?: Format;
  /** The maximum to spend over all runs of the batch, as an exact decimal. */
  budget?: string;
  /** Whether to write a sidecar next to each file. */
  sidecar?: boolean;
}

/** Returns the `--results` flag, which takes a path: lines cannot be appended to an object in a bucket. */
export function resultsOption(): Option {
  return single('--results <file>', 'append a JSON line for each row as it ends', (path) => {
    const problem = isUrl(path) ? 'a path, not a URL' : tildeProblem(path);
    if (problem !== undefined) throw new Error(problem);
    return path;
  }).helpGroup('Output:');
}

/** Adds the flags that control how a manifest is read. */
export function addManifestOptions(command: Command): void {
  command
    .addOption(
      repeatable(
        '-d, --default <name=value>',
        'default value of a field in every row, such as -d model=vendor-h3',
      ),
    )
    .addOption(repeatable('--allow-files <dir>', 'also let rows use files in this folder'))
    .addOption(
      repeatable(
        '--ignore-columns <names>',
        'ignore columns that are not fields, such as notes,status; templates may use them',
      ),
    )
    .addOption(new Option('--format <format>', 'format of standard input (-)').choices(formatNames))
    .addOption(single('--name <name>', 'batch name (default: the file name without its extension)'));
}

/** Adds the flags that identify a batch. */
export function addBatchOptions(command: Command): void {
  addManifestOptions(command);
  command
    .addOption(
      outputOption(
        '-o, --output <template>',
        'where to save files, such as clips/{id}.{ext}; also {slug} {index} {name} {model} {protocol} {seed} {job} {n}',
      ),
    )
    .addOption(
      new Option('--force', 'overwrite files that do not belong to this batch').helpGroup('Output:'),
    );
}

/** Options shared by commands that run rows. */
export interface RunBatchOptions extends BatchOptions, BudgetOptions {
  timeout?: string;
  concurrency?: number;
  perMinute?: number;
  skipBad?: boolean;
  results?: string;
  strict?: boolean;
  mark?: boolean;
}

/** Adds the flags for running a batch. */
export function addRunOptions(command: Command): void {
  addBatchOptions(command);
  command
    .addOption(
      single('--concurrency <n>', 'maximum number of tasks in progress (default 4)', wholeNumber(1, 10_000)),
    )
    .addOption(
      single('--per-minute <n>', 'maximum number of submissions per minute', wholeNumber(1, 1_000_000)),
    )
    .option('--skip-bad', 'skip invalid rows')
    .addOption(resultsOption());
  command.addOption(sidecarOption()).addOption(strictRowsOption()).addOption(markOption());
  addWaitOptions(command, 'time limit for each row, such as 90s or 20m (default 30m)');
  for (const option of budgetOptions('this batch')) command.addOption(option);
}

/** Returns the `--strict` option of commands that run rows. */
export function strictRowsOption(): Option {
  return strictOption('exit 11 if a video differs from its row; the video is kept, and never paid for again');
}

/**
 * Returns the rate limiter of the given batch. All machines with the same ledger share the limiter.
 * @throws MgwError('unreachable') if a shared ledger does not respond.
 */
export async function paceOf(
  context: Context,
  batch: string,
  limits: Omit<PaceOptions, 'intervalMs' | 'clock'>,
): Promise<Pace> {
  const { pollIntervalMs: intervalMs } = await context.gateway();
  const options = { ...limits, intervalMs, clock: context.clock };
  const fleet = fleetStateOf(await context.ledger());
  if (fleet === undefined) return new LocalPace(options);
  const { SharedPace } = await import('../../../batch/fleet/shared-pace.ts');
  const note = (text: string): void => context.progress.note(text);
  return SharedPace.open({ ...options, batch, fleet, note });
}

/** Returns the options for running rows, with the time limit from the settings. */
export async function rowOptionsOf(
  context: Context,
  rowOptions: Pick<RunOptions, 'force' | 'sidecar' | 'mark'>,
): Promise<Omit<RunOptions, 'pace'>> {
  const { timeoutMs } = await context.settings();
  return { ...rowOptions, timeoutMs: timeoutMs.value };
}

/** The default maximum number of tasks in progress. */
export const defaultConcurrency = 4;

/**
 * Returns the options for running the rows of a batch. An option that is not given has the value in the queue, which
 * applies to all machines, or else the value in the file.
 * @throws MgwError('unreachable') if a shared ledger does not respond.
 */
export async function runOptionsOf(
  context: Context,
  { name, place, force, manifest: { head } }: Batch,
  options: Pick<RunBatchOptions, 'concurrency' | 'perMinute' | 'sidecar' | 'mark'>,
  onLimit: PaceOptions['onLimit'],
): Promise<RunOptions> {
  const fleet = fleetStateOf(await context.ledger());
  const queue = fleet && (await import('../../../batch/fleet/queued-row.ts'));
  const queued = fleet && (await queue?.queuedHeadOf(fleet.query, name));
  const {
    concurrency = queued?.concurrency ?? Number(head.concurrency ?? defaultConcurrency),
    perMinute = queued?.perMinute,
    sidecar = queued?.sidecar === true && !isObjectUrl(place.folder),
    mark,
  } = options;
  const rows = await rowOptionsOf(context, { force, sidecar, mark });
  return { ...rows, pace: await paceOf(context, name, { concurrency, perMinute, onLimit }) };
}

/** Returns the flags of a command that repeats the run with the same options. */
export function flagsAsTyped(options: RunBatchOptions): string[] {
  const { default: fields = [], force, sidecar, ...typed } = options;
  const flagWithValue = (flag: string, value: string | number | undefined): string[] =>
    value === undefined ? [] : [flag, String(value)];
  return [
    ...fields.flatMap((field) => ['-d', field]),
    ...(typed.allowFiles ?? []).flatMap((folder) => ['--allow-files', folder]),
    ...(typed.ignoreColumns ?? []).flatMap((names) => ['--ignore-columns', names]),
    ...flagWithValue('--format', typed.format),
    ...flagWithValue('--name', typed.name),
    ...flagWithValue('--concurrency', typed.concurrency),
    ...flagWithValue('--per-minute', typed.perMinute),
    ...flagWithValue('-o', typed.output),
    ...(force ? ['--force'] : []),
    ...(sidecar ? ['--sidecar'] : []),
    ...(typed.strict ? ['--strict'] : []),
    ...(typed.mark ? ['--mark'] : []),
    ...(typed.skipBad ? ['--skip-bad'] : []),
    ...flagWithValue('--results', typed.results),
    ...flagWithValue('--timeout', typed.timeout),
    ...flagWithValue('--budget', typed.budget),
    ...flagWithValue('--budget-name', typed.budgetName),
  ];
}
