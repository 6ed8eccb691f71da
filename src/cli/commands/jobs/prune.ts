import { counted } from '../../../printable.ts';
import type { Command } from 'commander';
import { parseDuration } from '../../../clock.ts';
import { usageError, type MgwError } from '../../../errors.ts';
import { budgetsWithReservations } from '../../../flows/budgets.ts';
import { recordedJobHere } from '../../../flows/find-job.ts';
import {
  keepReasons,
  prune,
  type KeepReason,
  type PruneResult,
  removeJob,
  obstacleOf,
  type Obstacle,
} from '../../../jobs/remove.ts';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Job } from '../../../job.ts';
import { resolveCommand, waitCommand } from '../../../jobs/errors.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import { readRefs } from '../../input.ts';

interface PruneOptions {
  olderThan?: number;
  keys?: boolean;
  dryRun?: boolean;
}

const explanation = `
Removes jobs that succeeded, failed or were rejected, and are no longer needed. Keeps jobs that are open, unknown,
or not delivered to the command that paid for them, and speech that must not be paid for again. Also keeps jobs with
a key, because a key never pays twice; --keys removes them. Saved files are kept. mgw spend no longer counts
removed jobs. To archive them first: mgw jobs export.

Examples:
  $ mgw jobs prune --older-than 30d
  $ mgw jobs prune --older-than 30d --dry-run
  $ mgw jobs prune --older-than 90d --keys`;

/**
 * `mgw jobs prune --older-than AGE`: removes ended jobs from the ledger. Keeps a job if repeating its command would pay
 * again without the job's record.
 */
export function registerPrune(command: Command, run: Run): void {
  command
    .addOption(
      single('--older-than <age>', 'remove jobs without activity for this long, such as 30d', parseDuration),
    )
    .option('--keys', 'also remove jobs with a key; the same --key may then pay again')
    .option('--dry-run', 'print what would be removed, and remove nothing')
    .addHelpText('after', explanation)
    .action(() => run(command, (context) => pruneJobs(context, command.opts())));
}

async function pruneJobs(
  context: Context,
  { olderThan, keys = false, dryRun = false }: PruneOptions,
): Promise<Outcome> {
  if (olderThan === undefined) throw usageError('--older-than is required, such as --older-than 30d.');
  const before = context.clock.now() - olderThan;
  const pruned = await prune(
    await context.ledger(),
    { before, keys, dryRun },
    await budgetsWithReservations(context),
  );
  context.progress.note(`${summary(pruned, dryRun)}${keptText(pruned)}.`);
  return {
    json: { removed: pruned.removed, kept: pruned.kept, ...(dryRun && { dry_run: true }) },
    text: pruned.removed.join('\n'),
  };
}

function summary({ removed: { length: count } }: PruneResult, dryRun: boolean): string {
  const jobs = counted(count, 'job');
  return dryRun ? `${jobs} would be removed` : `${jobs} removed`;
}

const reasonTexts: Record<KeepReason, string> = {
  newer: 'newer',
  open: 'unfinished',
  in_use: 'in use by a process',
  undelivered: 'not delivered yet (repeat the command to resume)',
  speech: 'speech that must not be paid for again',
  key: 'with a key (--keys removes them too)',
};

function keptText({ kept }: PruneResult): string {
  const reported = keepReasons.filter((reason) => kept[reason] > 0 && reason !== 'newer');
  if (reported.length === 0) return '';
  return `; kept: ${reported.map((reason) => `${kept[reason]} ${reasonTexts[reason]}`).join(', ')}`;
}

/** `mgw jobs rm REF...`: deletes job records. Open and unknown jobs require `--force`. Saved files are kept. */
export function registerRm(command: Command, run: Run): void {
  command
    .argument('<refs...>', 'job ids, @key, @last; - reads them from stdin')
    .option(
      '--force',
      'also remove jobs that are unfinished or whose outcome is unknown; their records are lost',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs ls -q --state failed | mgw jobs rm -\n  $ mgw jobs rm @last --force\n  $ mgw jobs rm @last --force --json',
    )
    .action((refs: string[]) => run(command, (context) => rm(context, refs, command.opts())));
}

function notRemoved(job: Job, obstacle: Obstacle): MgwError {
  const [isInUse, state] = [obstacle === 'in_use', shownState(job)];
  const text = isInUse
    ? 'is in use by a process. Wait for the process, or use --force to remove the job anyway.'
    : `is ${state}: it may have been paid for. To remove its record anyway, use --force.`;
  const next = !isInUse && state === 'unknown' ? resolveCommand(job) : waitCommand(job);
  return usageError(`${job.id} ${text}`, next).with({ job });
}

async function rm(context: Context, refs: string[], options: { force?: boolean }): Promise<Outcome> {
  const ledger = await context.ledger();
  const { force = false } = options;
  const jobs: Job[] = [];
  for (const ref of await readRefs(refs, context.io))
    jobs.push(
      await recordedJobHere(context, ref, ({ id }) => ['jobs', 'rm', id, ...(force ? ['--force'] : [])]),
    );
  for (const job of force ? [] : jobs) {
    const obstacle = await obstacleOf(ledger, job);
    if (obstacle !== undefined) throw notRemoved(job, obstacle);
  }
  const budgetsOf = await budgetsWithReservations(context);
  for (const job of jobs) {
    const obstacle = await removeJob(ledger, job, force, budgetsOf);
    if (obstacle !== undefined) throw notRemoved(job, obstacle);
  }
  return { json: { removed: jobs.map((job) => job.id) }, text: jobs.map((job) => job.id).join('\n') };
}
