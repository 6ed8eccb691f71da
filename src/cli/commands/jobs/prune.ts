import type { Command } from 'commander';
import { parseDuration } from '../../../duration.ts';
import { usageError } from '../../../errors.ts';
import { budgetsHolding } from '../../../flows/budgets.ts';
import { keepReasons, prune, type KeepReason, type Pruned } from '../../../jobs/prune.ts';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';

interface PruneOptions {
  olderThan?: number;
  keys?: boolean;
  dryRun?: boolean;
}

const explanation = `
Only what has succeeded, failed or was rejected is removed, and of that only what nothing needs: a job that is open,
unknown, or not delivered to the command that paid for it stays, and so does speech that must not be paid for again. A job with
a key stays as well, since its key promises never to pay twice; --keys gives that up. Saved files stay. mgw spend no
longer counts what was removed: mgw jobs export keeps it.

Examples:
  $ mgw jobs prune --older-than 30d
  $ mgw jobs prune --older-than 30d --dry-run
  $ mgw jobs prune --older-than 90d --keys`;

/** `mgw jobs prune --older-than AGE`: removes ended jobs from the ledger that no promise needs. */
export function registerPrune(command: Command, run: Run): void {
  command
    .addOption(
      single('--older-than <age>', 'jobs to which nothing has happened since, such as 30d', parseDuration),
    )
    .option('--keys', 'also jobs with a key: the same --key may then pay again')
    .option('--dry-run', 'remove nothing, and print what would be removed')
    .addHelpText('after', explanation)
    .action(() => run(command, (context) => pruneJobs(context, command.opts())));
}

async function pruneJobs(
  context: Context,
  { olderThan, keys = false, dryRun = false }: PruneOptions,
): Promise<Outcome> {
  if (olderThan === undefined) throw usageError('How old? Give --older-than, such as --older-than 30d.');
  const before = context.clock.now() - olderThan;
  const pruned = await prune(await context.ledger(), { before, keys, dryRun }, await budgetsHolding(context));
  context.progress.note(`${summary(pruned, dryRun)}${keptText(pruned)}.`);
  return {
    json: { removed: pruned.removed, kept: pruned.kept, ...(dryRun && { dry_run: true }) },
    text: pruned.removed.join('\n'),
  };
}

function summary({ removed: { length: count } }: Pruned, dryRun: boolean): string {
  const jobs = count === 1 ? '1 job' : `${count} jobs`;
  return dryRun ? `${jobs} would be removed` : `${jobs} removed`;
}

const words: Record<KeepReason, string> = {
  newer: 'newer',
  open: 'not ended',
  in_use: 'in use by a process',
  undelivered: 'not delivered yet (the same command resumes)',
  speech: 'speech that must not be paid for again',
  key: 'with a key (--keys removes them too)',
};

function keptText({ kept }: Pruned): string {
  const told = keepReasons.filter((reason) => kept[reason] > 0 && reason !== 'newer');
  if (told.length === 0) return '';
  return `; kept: ${told.map((reason) => `${kept[reason]} ${words[reason]}`).join(', ')}`;
}
