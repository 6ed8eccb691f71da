import type { Command } from 'commander';
import { usageError } from '../../../errors.ts';
import { isFinal, type Job } from '../../../job.ts';
import { forget } from '../../../jobs/forget.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { readRefs } from '../../refs.ts';

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

async function rm(context: Context, refs: string[], options: { force?: boolean }): Promise<Outcome> {
  const ledger = await context.ledger();
  const jobs: Job[] = [];
  for (const ref of await readRefs(refs, context.io)) jobs.push((await findJob(ledger, ref)) ?? missing(ref));
  const open = jobs.filter((job) => !isFinal(job.state) && job.state !== 'prepared');
  if (open[0] !== undefined && !options.force) {
    throw usageError(
      `${open[0].id} is ${shownState(open[0])}: it may have been paid for. --force forgets it all the same.`,
    );
  }
  for (const job of jobs) await forget(ledger, job);
  return { json: { removed: jobs.map((job) => job.id) }, text: jobs.map((job) => job.id).join('\n') };
}
