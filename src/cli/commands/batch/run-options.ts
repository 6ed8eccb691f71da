import { type Command } from 'commander';
import { budgetOptions, type BudgetOptions } from '../../budget-options.ts';
import { single, wholeNumber } from '../../options.ts';
import { addWaitOptions, sidecarOption, type WaitOptions } from '../../wait-options.ts';
import { addBatchOptions, type BatchOptions } from './options.ts';

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
