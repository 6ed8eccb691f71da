import { type Command, Option } from 'commander';
import { rowId } from '../../../batch/manifest/fields.ts';
import { retryOf, retryOfRated, type RowSelection } from '../../../batch/row-selection.ts';
import { usageError } from '../../../errors.ts';
import type { Context } from '../../context.ts';
import { repeatable, single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { execute } from './run.ts';
import { addRunOptions, type RunBatchOptions } from './options.ts';

interface RetryOptions extends RunBatchOptions {
  failed?: boolean;
  changed?: boolean;
  stale?: boolean;
  rated?: number;
  id?: string[];
}

const examples = `
Examples:
  $ mgw batch retry clips.csv --failed --changed
  $ mgw batch retry clips.csv --id intro --id outro
  $ mgw batch retry clips.csv --rated 2`;

/** `mgw batch retry FILE --failed|--changed|--stale|--rated N|--id ID...`: remakes rows, and pays for them again. */
export function registerRetry(command: Command, run: Run): void {
  command
    .argument('<batch>', "the batch's file, or its name if it was run before")
    .addOption(new Option('--failed', 'all rows that failed'))
    .addOption(new Option('--changed', 'all rows whose content changed but whose id did not'))
    .addOption(new Option('--stale', 'rows whose source video was remade, and the rows that depend on them'))
    .addOption(
      single(
        '--rated <n>',
        'all rows whose result is rated n or lower; the result is kept',
        wholeNumber(1, 5),
      ),
    )
    .addOption(repeatable('--id <id...>', 'the row with this id, even if it is done'));
  addRunOptions(command);
  command
    .addHelpText('after', examples)
    .action((nameOrFile: string) => run(command, (context) => retry(context, nameOrFile, command.opts())));
}

function retry(context: Context, nameOrFile: string, options: RetryOptions): Promise<Outcome> {
  return execute(context, nameOrFile, options, choiceOf(options), selectionFlags(options));
}

function selectionFlags({ failed, changed, stale, rated, id = [] }: RetryOptions): string[] {
  return [
    ...(failed ? ['--failed'] : []),
    ...(changed ? ['--changed'] : []),
    ...(stale ? ['--stale'] : []),
    ...(rated === undefined ? [] : ['--rated', String(rated)]),
    ...id.flatMap((each) => ['--id', each]),
  ];
}

function choiceOf({ rated, id: ids, force = false, ...kinds }: RetryOptions): RowSelection {
  const { failed = false, changed = false, stale = false } = kinds;
  const selections = [failed || changed || stale, rated !== undefined, ids !== undefined].filter(Boolean);
  if (selections.length !== 1)
    throw usageError(
      'Use one or more of --failed, --changed and --stale; or --rated N; or --id ID for each row.',
    );
  if (rated !== undefined) return retryOfRated(rated);
  const selected = ids && new Set(ids.map(rowId));
  return retryOf({ ids: selected, isFailed: failed, isChanged: changed, isStale: stale }, force);
}
