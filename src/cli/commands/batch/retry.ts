import type { Command } from 'commander';
import { Option } from 'commander';
import { retryOf } from '../../../batch/choice.ts';
import { usageError } from '../../../errors.ts';
import type { Context } from '../../context.ts';
import { repeatable } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { execute } from './execute.ts';
import { addRunOptions, type RunBatchOptions } from './run-options.ts';

interface RetryOptions extends RunBatchOptions {
  failed?: boolean;
  id?: string[];
}

const examples = `
Examples:
  $ mgw batch retry clips.csv --failed
  $ mgw batch retry clips.csv --id intro --id outro`;

/** `mgw batch retry FILE --failed|--id ID...`: a new take of rows that ended badly; it is paid for again. */
export function registerRetry(batch: Command, run: Run): void {
  const command = batch
    .command('retry')
    .description('a new take of rows that ended badly or were changed: it is paid for again')
    .argument('<batch>', 'its file, or its name where it was run before')
    .addOption(new Option('--failed', 'all rows that failed'))
    .addOption(repeatable('--id <id...>', 'the row of this id'));
  addRunOptions(command);
  command
    .addHelpText('after', examples)
    .action((given: string) => run(command, (context) => retry(context, given, command.opts())));
}

function retry(context: Context, given: string, options: RetryOptions): Promise<Outcome> {
  const { failed = false, id: ids } = options;
  if (failed === (ids !== undefined)) throw usageError('Give either --failed, or --id ID for each row.');
  return execute(context, given, options, retryOf(ids && new Set(ids)));
}
