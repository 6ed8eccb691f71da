import { Option, type Command } from 'commander';
import { budgetOptions, type BudgetOptions } from '../../budget-options.ts';
import { repeatable, single, wholeNumber } from '../../options.ts';
import { addWaitOptions, sidecarOption, type WaitOptions } from '../../wait-options.ts';

/** What tells a batch: its file, its name, and where its files go. */
export interface BatchOptions {
  /** Templates: `clips/{id}.{ext}`. */
  output?: string;
  default?: string[];
  name?: string;
  force?: boolean;
}

/** Adds the flags by which a batch is told. */
export function addBatchOptions(command: Command): void {
  command
    .addOption(
      repeatable(
        '-d, --default <name=value>',
        'a field of every row that does not give it: -d model=vendor-h3',
      ),
    )
    .addOption(single('--name <name>', "names the batch (default: the file's, without its ending)"))
    .addOption(
      single(
        '-o, --output <template>',
        'where files go, such as clips/{id}.{ext}; also {slug} {index} {name} {model} {protocol} {seed} {job} {n}',
      ).helpGroup('Output:'),
    )
    .addOption(new Option('--force', 'overwrite files that are not of this batch').helpGroup('Output:'));
}

/** The options of the commands that carry rows out. */
export interface RunBatchOptions extends BatchOptions, WaitOptions, BudgetOptions {
  concurrency?: number;
  perMinute?: number;
  skipBad?: boolean;
  results?: string;
  sidecar?: boolean;
}

/** Adds the flags of carrying a batch out. */
export function addRunOptions(command: Command): void {
  addBatchOptions(command);
  command
    .addOption(
      single(
        '--concurrency <n>',
        'how many tasks are under way at the gateway at most (default 4)',
        wholeNumber(1, 10_000),
      ),
    )
    .addOption(single('--per-minute <n>', 'how many submissions a minute at most', wholeNumber(1, 1_000_000)))
    .option('--skip-bad', 'leave out rows that cannot be carried out as they are')
    .addOption(
      single('--results <file>', 'append a line of JSON for each row as it ends').helpGroup('Output:'),
    );
  command.addOption(sidecarOption());
  addWaitOptions(command, 'how long one row may take, such as 90s or 20m (default 30m)');
  for (const option of budgetOptions('this batch')) command.addOption(option);
}
