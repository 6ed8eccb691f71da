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
Removes jobs that succeeded, failed or were rejected, and are no longer needed. Jobs that are open, unknown,
or not delivered to the command that paid for them stay, and so does speech that must not be paid for again. Jobs with
a key stay too, because a key never pays twice; --keys removes them. Saved files stay. mgw spend no longer counts
removed jobs: mgw jobs export keeps them.

Examples:
  $ mgw jobs prune --older-than 30d
  $ mgw jobs prune --older-than 30d --dry-run
  $ mgw jobs prune --older-than 90d --keys`;

/**
 * `mgw jobs prune --older-than AGE`: removes ended jobs from the ledger, except those whose command would then pay
 * again if repeated.
 */
export function registerPrune(command: Command, run: Run): void {
  command
    .addOption(
      single('--older-than <age>', 'remove jobs without activity for this long, such as 30d', parseDuration),
    )
    .option('--keys', 'also remove jobs with a key; the same --key may then pay again')
    .option('--dry-run', 'remove nothing, and print what would be removed')
    .addHelpText('after', explanation)
    .action(() => run(command, (context) => pruneJobs(context, command.opts())));
}

async function pruneJobs(
  context: Context,
  { olderThan, keys = false, dryRun = false }: PruneOptions,
): Promise<Outcome> {
  if (olderThan === undefined)
    throw usageError('Give the age of the jobs to remove, such as --older-than 30d.');
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

const words: Record<KeepReason, string> = {
  newer: 'newer',
  open: 'not ended',
  in_use: 'in use by a process',
  undelivered: 'not delivered yet (the same command resumes)',
  speech: 'speech that must not be paid for again',
  key: 'with a key (--keys removes them too)',
};

function keptText({ kept }: PruneResult): string {
  const told = keepReasons.filter((reason) => kept[reason] > 0 && reason !== 'newer');
  if (told.length === 0) return '';
  return `; kept: ${told.map((reason) => `${kept[reason]} ${words[reason]}`).join(', ')}`;
}

/** `mgw jobs rm REF...`: forgets jobs; open and unknown ones only with `--force`. Saved files stay. */
export function registerRm(command: Command, run: Run): void {
  command
    .argument('<refs...>', 'job ids, @key, @last; - reads them from stdin')
    .option('--force', 'also remove jobs that have not ended or are unknown; their records are lost')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs ls -q --state failed | mgw jobs rm -\n  $ mgw jobs rm @last --force\n  $ mgw jobs rm @last --force --json',
    )
    .action((refs: string[]) => run(command, (context) => rm(context, refs, command.opts())));
}

function notRemoved(job: Job, obstacle: Obstacle): MgwError {
  return obstacle === 'in_use'
    ? usageError(
        `${job.id} is in use by a process: wait for it, or remove it anyway with --force.`,
        waitCommand(job),
      )
    : usageError(
        `${job.id} is ${shownState(job)}: it may have been paid for. --force removes its record anyway.`,
        shownState(job) === 'unknown' ? resolveCommand(job) : waitCommand(job),
      );
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
