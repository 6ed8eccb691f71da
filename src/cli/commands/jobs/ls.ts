import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { columnsOf } from '../../io.ts';
import { oneOf, repeatable, sinceOption, sinceTime, single, someOf, wholeNumber } from '../../options.ts';
import { ago } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import { type Column, fittedTable } from '../../output/table.ts';
import { cutToWidth } from '../../help/wrap.ts';
import { type Job, jobStates } from '../../../job.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import { newestJobs } from '../../../jobs/newest.ts';
import { visibleFiles } from '../../../jobs/output.ts';
import { jobView } from '../../../jobs/view.ts';
import { printableLine } from '../../../printable.ts';
import { promptOf } from '../../../protocols/requested-value.ts';
import { protocolNames } from '../../../protocols/registry.ts';

interface LsOptions {
  state?: string[];
  protocol?: string;
  model?: string[];
  since?: string;
  key?: string[];
  batch?: string;
  mismatched?: boolean;
  limit?: number;
  all?: boolean;
}

const examples = `
Examples:
  $ mgw jobs ls --state queued,running
  $ mgw jobs ls --model vendor-h3-mini --since 1d
  $ mgw jobs ls --mismatched --since 7d
  $ mgw jobs ls -q --state running | mgw jobs wait -`;

/** `mgw jobs ls`: lists jobs, newest first; `-q` prints only ids, for `mgw jobs wait -`. */
export function registerLs(command: Command, run: Run): void {
  command
    .addOption(someOf('--state <state>', 'only jobs in this state; prepared jobs were never sent', jobStates))
    .addOption(oneOf(single('--protocol <name>', 'only jobs of this protocol'), [...protocolNames, 'tts']))
    .addOption(repeatable('--model <name>', 'only jobs of this model'))
    .addOption(sinceOption())
    .addOption(
      repeatable(
        '--key <name>',
        'only the job with this key; boat-* matches every key that starts with boat-',
      ),
    )
    .addOption(single('--batch <name>', 'only jobs of this batch'))
    .option('--mismatched', 'only jobs with a file that differs from the request')
    .addOption(single('--limit <n>', 'maximum number of jobs (default 20; with -q, all)', wholeNumber(1)))
    .option('--all', 'show all jobs')
    .addHelpText('after', examples)
    .action(() => run(command, (context) => ls(context, command.opts())));
}

async function ls(context: Context, options: LsOptions): Promise<Outcome> {
  const { all, limit: maxJobs, ...filter } = options;
  // -q hides the note about older jobs, and the command that reads the ids needs all of them.
  const limit = all ? Infinity : (maxJobs ?? (context.globals.quiet ? Infinity : 20));
  const now = context.clock.now();
  const since = options.since === undefined ? undefined : sinceTime(options.since, now);
  const ledger = await context.ledger();
  const { jobs, more } = await newestJobs(ledger, { ...filter, since }, limit);
  if (more > 0 && !context.globals.json)
    context.progress.note(`${more} older jobs are not shown. To show them, use --all.`);
  if (jobs.length === 0) {
    const { sandbox } = await context.settings();
    const hint = sandbox.value ? '' : " To list the sandbox's jobs: mgw --sandbox jobs ls";
    context.progress.note(Object.keys(filter).length > 0 ? 'No job matches.' : `No jobs.${hint}`);
  }
  const json = { jobs: jobs.map(jobView), ...(more > 0 && { older: more }) };
  if (context.globals.quiet) return { json, text: jobs.map((job) => job.id).join('\n') };
  return { json, text: jobs.length === 0 ? '' : listing(jobs, now, columnsOf(context.io.stdout)) };
}

const narrowWidth = 60;

function listing(jobs: readonly Job[], now: number, width: number | undefined): string {
  if (width !== undefined && width < narrowWidth) return jobs.map((job) => entry(job, now, width)).join('\n');
  const columns: Column<Job>[] = [
    { head: 'id', cell: ({ id }) => id },
    { head: 'protocol', cell: ({ protocol }) => protocol, rank: 4 },
    { head: 'state', cell: shownState },
    { head: 'model', cell: ({ model }) => model, minWidth: 14, rank: 3 },
    { head: 'created', cell: ({ created_at }) => ago(created_at, now), rank: 2 },
    { head: 'key', cell: ({ key }) => key, minWidth: 8, rank: 1 },
    { head: 'prompt', cell: promptStart, minWidth: 12, rank: 1 },
    { head: 'result', cell: resultOf, minWidth: 24, rank: 5 },
  ];
  return fittedTable(columns, jobs, width);
}

// Formats a job on two lines, for a narrow terminal.
function entry(job: Job, now: number, width: number): string {
  const about = [job.key, promptStart(job)].filter((text) => text !== undefined).join(' · ');
  const first = `${job.id} ${shownState(job)} ${ago(job.created_at, now)}`;
  const lines = about === '' ? [first] : [first, `  ${printableLine(about)}`];
  return lines.map((line) => cutToWidth(line, width)).join('\n');
}

const maxPromptLength = 60;

function promptStart(job: Job): string | undefined {
  const prompt = promptOf(job);
  return prompt === undefined ? undefined : printableLine(prompt, maxPromptLength);
}

function resultOf(job: Job): string | undefined {
  return visibleFiles(job)[0]?.path ?? job.error?.message ?? job.handle;
}
