import type { Command } from 'commander';
import type { Job } from '../../../job.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import { printable, printableLine } from '../../../printable.ts';
import type { Context } from '../../context.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';

/** `mgw jobs show REF`: all that the ledger knows of a job; nothing is asked of the gateway. */
export function registerShow(jobs: Command, run: Run): void {
  const command = jobs
    .command('show')
    .description('all that is recorded of a job')
    .argument('<ref>', 'job id, @key, @last, or a handle of the gateway')
    .addHelpText('after', '\nExamples:\n  $ mgw jobs show @last --json')
    .action((ref: string) => run(command, (context) => show(context, ref)));
}

async function show(context: Context, ref: string): Promise<Outcome> {
  const job = (await findJob(await context.ledger(), ref)) ?? missing(ref);
  return { json: { job: jobView(job) }, text: textOf(job) };
}

function textOf(job: Job): string {
  const members = Object.entries(jobView(job)).filter(([, value]) => value !== undefined);
  return members.map(([name, value]) => `${name.padEnd(14)}${shown(value)}`).join('\n');
}

function shown(value: unknown): string {
  if (typeof value === 'string') return printableLine(value);
  return printable(JSON.stringify(value, undefined, 2)).replaceAll('\n', `\n${' '.repeat(14)}`);
}
