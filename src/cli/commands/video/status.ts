import type { Command, Option } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { columnsOf } from '../../io.ts';
import { jobLine } from '../../output/human.ts';
import { errorView, type Outcome } from '../../output/outcome.ts';
import { timeoutOption } from '../../wait-options.ts';
import { readRefs } from '../../input.ts';
import { exitCodes, type MgwError, toMgwError, usageError } from '../../../errors.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import type { Job } from '../../../job.ts';
import { showCommand } from '../../../jobs/errors.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { oneListing } from '../../../flows/models.ts';
import { protocolOfModel } from '../../../flows/model-protocol.ts';
import { single } from '../../options.ts';

/** `mgw video [X] status REF...`: queries each job once, without waiting. */
export function registerStatus(command: Command, protocol: Protocol | undefined, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last or gateway handles; - reads them from stdin');
  if (protocol === undefined) command.addOption(handleModelOption());
  command
    .addOption(timeoutOption())
    .addHelpText('after', examplesFor(wordsOf('status', protocol), ['@last', '@last --json', '-q @last']))
    .action((refs: string[]) =>
      run(command, async (context) =>
        status(context, protocol ?? (await handleProtocol(context, command.opts())), refs),
      ),
    );
}

/** Returns the words of a video command after `mgw`: `video c status`, or `video status` without a protocol. */
export function wordsOf(verb: string, protocol: Protocol | undefined): string[] {
  return ['video', ...(protocol === undefined ? [] : [protocol.name]), verb];
}

/** Returns help text with an example for each of `endings`. */
export function examplesFor(words: readonly string[], endings: readonly string[]): string {
  return `\nExamples:${endings.map((ending) => `\n  $ mgw ${words.join(' ')} ${ending}`).join('')}`;
}

interface QueryResult {
  ref: string;
  job?: Job | undefined;
  error?: MgwError | undefined;
}

async function status(context: Context, protocol: Protocol | undefined, refs: string[]): Promise<Outcome> {
  // Reads the REFs before `jobDeps` installs signal handlers, so that a signal ends the command during the read.
  const allRefs = await readRefs(refs, context.io, await context.deadline());
  const deps = await context.jobDeps();
  const results: QueryResult[] = [];
  for (const ref of allRefs) results.push({ ref, ...(await queryOnce(ref, protocol, deps)) });
  const jobs = results.map(({ job, error }) => ({
    ...(job && jobView(job)),
    ...(error && { query: errorView(error, context.globals) }),
  }));
  const text = results
    .flatMap(({ job }) => (job ? [jobLine(job, columnsOf(context.io.stdout))] : []))
    .join('\n');
  if (results.length === 1) return { json: { job: jobs[0] }, text, error: results[0]?.error };
  const failed = results.filter(({ error }) => error !== undefined);
  for (const { ref, error } of failed) context.progress.note(`${ref}: ${error?.message ?? ''}`);
  return { json: { jobs }, text, exitCode: failed.length > 0 ? exitCodes.partial : exitCodes.ok };
}

// A failed query makes the command fail. A running job does not.
async function queryOnce(
  ref: string,
  protocol: Protocol | undefined,
  deps: FlowDeps,
): Promise<Omit<QueryResult, 'ref'>> {
  let job: Job | undefined;
  try {
    const [{ findJobHere }, { queryJob }] = await Promise.all([
      import('../../../flows/find-job.ts'),
      import('../../../flows/fetch.ts'),
    ]);
    const found = await findJobHere(ref, deps, wordsOf('status', protocol), protocol);
    ({ job } = found);
    if (found.protocol === undefined)
      throw usageError(`${ref} is a speech job, which has no task to query.`, showCommand(job));
    return await queryJob(job, found.protocol, deps);
  } catch (error) {
    return { job, error: toMgwError(error) };
  }
}

/**
 * Returns the `--model` option of commands that accept REFs. The model determines the protocol of a handle that is not
 * in the ledger.
 */
export function handleModelOption(): Option {
  return single('-m, --model <name>', 'the model of tasks that were submitted without mgw');
}

/**
 * Returns the protocol of the model in `--model`; undefined without the flag.
 * @throws MgwError('usage') with the `protocols` to choose from.
 */
export async function handleProtocol(
  context: Context,
  { model }: { model?: string },
): Promise<Protocol | undefined> {
  if (model === undefined) return undefined;
  await context.deadline();
  return protocolOfModel(context, model, oneListing(context));
}
