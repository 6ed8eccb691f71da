import type { Command } from 'commander';
import type { Job } from '../../../job.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import type { Context } from '../../context.ts';
import { oneOf, repeatable, single, wholeNumber } from '../../options.ts';
import { ago } from '../../output/human.ts';
import { table } from '../../output/table.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';

interface LsOptions {
  state?: string[];
  protocol?: string;
  batch?: string;
  limit?: number;
  all?: boolean;
}

const states = ['prepared', 'sending', 'unknown', 'queued', 'running', 'succeeded', 'failed', 'rejected'];

/** `mgw jobs ls`: newest first; `-q` prints ids alone, for `mgw jobs wait -`. */
export function registerLs(jobs: Command, run: Run): void {
  const command = jobs
    .command('ls')
    .description('list jobs, newest first; with -q their ids alone')
    .addOption(oneOf(repeatable('--state <state>', 'only jobs in this state'), states))
    .addOption(oneOf(single('--protocol <name>', 'only jobs of this protocol'), ['a', 'b', 'c', 'tts']))
    .addOption(single('--batch <name>', 'only jobs of this batch'))
    .addOption(single('--limit <n>', 'at most so many (default 20)', wholeNumber(1)))
    .option('--all', 'no limit')
    .addHelpText('after', '\nExamples:\n  $ mgw jobs ls -q --state running | mgw jobs wait -')
    .action(() => run(command, (context) => ls(context, command.opts())));
}

async function ls(context: Context, options: LsOptions): Promise<Outcome> {
  const limit = options.all ? Infinity : (options.limit ?? 20);
  const ledger = await context.ledger();
  const { shown, more } = await newest(ledger, options, limit);
  if (more > 0 && !context.globals.json)
    context.progress.note(`${more} older jobs are not shown; --all shows them.`);
  if (shown.length === 0) context.progress.note('No jobs.');
  const json = { jobs: shown.map(jobView), ...(more > 0 && { older: more }) };
  if (context.globals.quiet) return { json, text: shown.map((job) => job.id).join('\n') };
  return { json, text: shown.length === 0 ? '' : listing(shown, context.clock.now()) };
}

// Only as many records are read as are shown, so that a ledger of any size is listed at once.
async function newest(
  ledger: Ledger,
  options: LsOptions,
  limit: number,
): Promise<{ shown: Job[]; more: number }> {
  const shown: Job[] = [];
  const ids = await ledger.ids();
  for (const [index, id] of ids.entries()) {
    if (shown.length >= limit) return { shown, more: ids.length - index };
    const job = await ledger.read(id);
    if (job === undefined) continue;
    if (options.protocol !== undefined && job.protocol !== options.protocol) continue;
    if (options.batch !== undefined && job.key?.startsWith(`${options.batch}/`) !== true) continue;
    if (options.state === undefined || options.state.includes(shownState(job))) shown.push(job);
  }
  return { shown, more: 0 };
}

function listing(jobs: readonly Job[], now: number): string {
  const rows = jobs.map((job) => [
    job.id,
    job.protocol,
    shownState(job),
    job.model ?? '-',
    ago(job.created_at, now),
    job.files[0]?.path ?? job.error?.message ?? job.handle ?? '-',
  ]);
  return table(['id', 'protocol', 'state', 'model', 'created', 'result'], rows);
}
