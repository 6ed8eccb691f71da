import { type Command, Option } from 'commander';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { type Format, formatNames } from '../../../batch/manifest/manifest.ts';
import { LocalPace, type Pace, type PaceOptions } from '../../../batch/pace.ts';
import type { RunOptions } from '../../../batch/row-runner.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, type BudgetOptions, repeatable, single, wholeNumber } from '../../options.ts';
import {
  addWaitOptions,
  markOption,
  sidecarOption,
  strictOption,
  type WaitOptions,
} from '../../wait-options.ts';

/** The options that identify a batch: its name and its output. */
export interface BatchOptions {
  /** A template such as `clips/{id}.{ext}`. */
  output?: string;
  default?: string[];
  name?: string;
  force?: boolean;
  /** Folders whose files rows may name, besides the manifest's folder and the current one. */
  allowFiles?: string[];
  /** Columns that are not fields, separated by commas. */
  ignoreColumns?: string[] | undefined;
  format?: Format;
  /** The maximum to spend on all its runs, an exact decimal. */
  budget?: string;
  /** Writes a sidecar next to each file. */
  sidecar?: boolean;
}

/** Adds the flags that control how a manifest is read. */
export function addManifestOptions(command: Command): void {
  command
    .addOption(
      repeatable(
        '-d, --default <name=value>',
        'the default of a field in every row, such as -d model=vendor-h3',
      ),
    )
    .addOption(
      repeatable(
        '--allow-files <dir>',
        "let rows use files in this folder, besides the manifest's and the current one",
      ),
    )
    .addOption(
      repeatable(
        '--ignore-columns <names>',
        'ignore columns that are not fields, such as notes,status; templates may use them',
      ),
    )
    .addOption(new Option('--format <format>', 'the format of standard input (-)').choices(formatNames))
    .addOption(single('--name <name>', 'name of the batch (default: the file name without its extension)'));
}

/** Adds the flags that identify a batch. */
export function addBatchOptions(command: Command): void {
  addManifestOptions(command);
  command
    .addOption(
      single(
        '-o, --output <template>',
        'where to save files, such as clips/{id}.{ext}; also {slug} {index} {name} {model} {protocol} {seed} {job} {n}',
      ).helpGroup('Output:'),
    )
    .addOption(
      new Option('--force', 'overwrite files that do not belong to this batch').helpGroup('Output:'),
    );
}

/** The options of the commands that run rows. */
export interface RunBatchOptions extends BatchOptions, WaitOptions, BudgetOptions {
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
      single('--per-minute <n>', 'maximum number of submissions a minute', wholeNumber(1, 1_000_000)),
    )
    .option('--skip-bad', 'leave out invalid rows')
    .addOption(
      single('--results <file>', 'append a line of JSON for each row as it ends').helpGroup('Output:'),
    );
  command.addOption(sidecarOption()).addOption(strictRowsOption()).addOption(markOption());
  addWaitOptions(command, 'how long one row may take, such as 90s or 20m (default 30m)');
  for (const option of budgetOptions('this batch')) command.addOption(option);
}

/** Returns `--strict` for the commands that run rows. */
export function strictRowsOption(): Option {
  return strictOption('exit 11 if a video differs from its row; the video is kept, and not paid for again');
}

/**
 * Returns the rate limiter of a batch. Machines that share the ledger share the rate limiter too.
 * @throws MgwError('unreachable').
 */
export async function paceOf(
  context: Context,
  batch: string,
  given: Omit<PaceOptions, 'intervalMs' | 'clock'>,
): Promise<Pace> {
  const { pollIntervalMs: intervalMs } = await context.gateway();
  const options = { ...given, intervalMs, clock: context.clock };
  const fleet = fleetStateOf(await context.ledger());
  if (fleet === undefined) return new LocalPace(options);
  const { SharedPace } = await import('../../../batch/fleet/shared-pace.ts');
  const note = (text: string): void => context.progress.note(text);
  return SharedPace.open({ ...options, batch, fleet, note });
}

/** Returns the options for running rows, completed from the settings. */
export async function rowOptionsOf(
  context: Context,
  wanted: Pick<RunOptions, 'force' | 'sidecar' | 'mark'>,
): Promise<Omit<RunOptions, 'pace' | 'nextRetry'>> {
  const { timeoutMs } = await context.settings();
  return { ...wanted, timeoutMs: timeoutMs.value };
}

/** Returns the flags of the command that repeats this run. */
export function flagsAsTyped(options: RunBatchOptions): string[] {
  const { default: fields = [], force, sidecar, ...typed } = options;
  const given = (flag: string, value: string | number | undefined): string[] =>
    value === undefined ? [] : [flag, String(value)];
  return [
    ...fields.flatMap((field) => ['-d', field]),
    ...(typed.allowFiles ?? []).flatMap((folder) => ['--allow-files', folder]),
    ...(typed.ignoreColumns ?? []).flatMap((names) => ['--ignore-columns', names]),
    ...given('--format', typed.format),
    ...given('--name', typed.name),
    ...given('--concurrency', typed.concurrency),
    ...given('--per-minute', typed.perMinute),
    ...given('-o', typed.output),
    ...(force ? ['--force'] : []),
    ...(sidecar ? ['--sidecar'] : []),
    ...(typed.strict ? ['--strict'] : []),
    ...(typed.mark ? ['--mark'] : []),
    ...(typed.skipBad ? ['--skip-bad'] : []),
    ...given('--results', typed.results),
    ...given('--timeout', typed.timeout),
    ...given('--budget', typed.budget),
    ...given('--budget-name', typed.budgetName),
  ];
}
