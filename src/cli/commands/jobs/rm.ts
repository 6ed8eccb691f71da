import type { Command } from 'commander';
import { usageError, type MgwError } from '../../../errors.ts';
import { budgetsHolding } from '../../../flows/budgets.ts';
import type { Job } from '../../../job.ts';
import { forget, obstacleOf, type Obstacle } from '../../../jobs/forget.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { waitCommand } from '../../../jobs/errors.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../command-tree.ts';
import { readRefs } from '../../input.ts';

/** `mgw jobs rm REF...`: forgets jobs; open and unknown ones only with `--force`. Saved files stay. */
export function registerRm(command: Command, run: Run): void {
  command
    .argument('<refs...>', 'job ids, @key, @last; - reads them from stdin')
    .option('--force', 'also jobs that have not ended, whose handle or doubt is then lost')
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
      );
}

async function rm(context: Context, refs: string[], options: { force?: boolean }): Promise<Outcome> {
  const ledger = await context.ledger();
  const jobs: Job[] = [];
  for (const ref of await readRefs(refs, context.io)) jobs.push((await findJob(ledger, ref)) ?? missing(ref));
  const { force = false } = options;
  for (const job of force ? [] : jobs) {
    const obstacle = await obstacleOf(ledger, job);
    if (obstacle !== undefined) throw notRemoved(job, obstacle);
  }
  const budgetsOf = await budgetsHolding(context);
  for (const job of jobs) {
    const obstacle = await forget(ledger, job, force, budgetsOf);
    if (obstacle !== undefined) throw notRemoved(job, obstacle);
  }
  return { json: { removed: jobs.map((job) => job.id) }, text: jobs.map((job) => job.id).join('\n') };
}
