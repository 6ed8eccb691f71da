import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { GalleryOptions } from './gallery-page.ts';
import { newestJobs } from '../../../jobs/newest.ts';
import type { Context } from '../../context.ts';
import { outputOption, sinceOption, sinceTime, single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { readRefs } from '../../input.ts';
import { usageError } from '../../../errors.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Job } from '../../../job.ts';
import { recordedJob } from '../../../jobs/ref.ts';

const defaultLimit = 2000;

const helpText = `
The page links to the saved files where they are. To copy the files next to the page, use --copy. The page works from
a disk, in a CI artifact and on a web server, and loads nothing from other hosts. --serve serves the page on this
machine only, until Ctrl-C, and saves ratings immediately.

Examples:
  $ mgw jobs gallery -o review/
  $ mgw jobs gallery --batch clips --since 1d -o review/
  $ mgw jobs ls -q --state succeeded | mgw jobs gallery - -o review/`;

/** `mgw jobs gallery [REF...]`: makes a page for viewing, comparing and rating results. */
export function registerGallery(command: Command, run: Run): void {
  command
    .argument('[refs...]', 'job ids, @key, @last; - reads them from stdin (default: all jobs)')
    .addOption(single('--batch <name>', 'only jobs of this batch'))
    .addOption(sinceOption())
    .addOption(
      single(
        '--limit <n>',
        `maximum number of jobs, newest first (default ${defaultLimit})`,
        wholeNumber(1, 20_000),
      ),
    )
    .addOption(outputOption('-o, --output <folder>', 'folder for index.html (default: the current folder)'))
    .option('--force', 'replace an index.html that is not a gallery')
    .option('--copy', 'copy the files to media/ next to the page')
    .option('--serve', 'serve the page on this machine until Ctrl-C, without writing a file')
    .addOption(single('--port <n>', 'port of --serve (default: any free port)', wholeNumber(0, 65_535)))
    .addHelpText('after', helpText)
    .action((refs: string[]) => run(command, (context) => gallery(context, refs, command.opts())));
}

async function gallery(context: Context, refs: string[], options: GalleryOptions): Promise<Outcome> {
  checkOptions(refs, options);
  const chosenRefs = refs.length === 0 ? undefined : await readRefs(refs, context.io);
  const jobs = (): Promise<Job[]> => jobsOf(context, chosenRefs, options);
  if (options.serve) return (await import('./gallery-page.ts')).serveGallery(context, jobs, options);
  return (await import('./gallery-page.ts')).writeGallery(context, await jobs(), options);
}

function checkOptions(refs: readonly string[], options: GalleryOptions): void {
  const { batch, since, limit, output, serve, port, copy, force } = options;
  if (refs.length > 0 && (batch !== undefined || since !== undefined || limit !== undefined))
    throw usageError('REFs cannot be combined with --batch, --since or --limit.');
  if (serve && (output !== undefined || copy || force))
    throw usageError('--serve cannot be combined with --output, --copy or --force.');
  if (!serve && port !== undefined) throw usageError('--port requires --serve.');
  if (output === '' || output === '-')
    throw usageError('--output must be a folder, or a file whose name ends in .html.');
  if (output !== undefined && isObjectUrl(output))
    throw usageError('--output must be a local path, not a bucket.');
}

async function jobsOf(
  context: Context,
  refs: readonly string[] | undefined,
  { batch, since, limit = defaultLimit }: GalleryOptions,
): Promise<Job[]> {
  const ledger = await context.ledger();
  if (refs !== undefined) {
    const jobs: Job[] = [];
    for (const ref of refs) jobs.push(await recordedJob(ledger, ref));
    return jobs;
  }
  const start = since === undefined ? undefined : sinceTime(since, context.clock.now());
  const { jobs, more } = await newestJobs(ledger, { batch, since: start }, limit);
  if (more > 0)
    context.progress.note(`Older jobs were omitted. To include them, raise --limit above ${limit}.`);
  return jobs;
}
