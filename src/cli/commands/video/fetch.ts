import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { deadlineIn, type Deadline } from '../../../clock.ts';
import { usageError, toMgwError } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { pendingError } from '../../../jobs/errors.ts';
import { goalOf, type Target } from '../../../jobs/target.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import { jobView } from '../../../jobs/view.ts';
import { withOutput } from '../../output/next.ts';
import type { Outcome } from '../../output/outcome.ts';
import { severalOutcomes } from '../../output/several.ts';
import { configured } from '../../../session/protocols.ts';
import { readRefs } from '../../refs.ts';
import {
  addOutputOptions,
  addWaitOptions,
  checkStdout,
  targetOf,
  type OutputOptions,
} from '../../wait-options.ts';
import { problemOf } from './status.ts';

interface FetchOptions extends OutputOptions {
  wait?: boolean;
}

/** `mgw video X fetch REF...`: waits with backoff polling, then saves; `--no-wait` asks once. */
export function registerFetch(group: Command, protocol: Protocol, run: Run): void {
  const command = group
    .command('fetch')
    .description('wait for jobs and save their results')
    .argument('<refs...>', 'job ids, @key, @last, or handles of the gateway; - reads them from stdin')
    .option('--no-wait', 'exit 8 where a job has not finished');
  addOutputOptions(command, 'a file, a folder, or - for stdout (default: JOB.mp4 in this folder)');
  addWaitOptions(command);
  command
    .addHelpText('after', `\nExamples:\n  $ mgw video ${protocol.name} fetch @last -o out.mp4`)
    .action((refs: string[]) => run(command, (context) => fetch(context, protocol, refs, command.opts())));
}

async function fetch(
  context: Context,
  registered: Protocol,
  given: string[],
  options: FetchOptions,
): Promise<Outcome> {
  checkStdout(context, options);
  const settings = await context.settings();
  const protocol = configured(registered, settings);
  const refs = await readRefs(given, context.io);
  const target = await targetFor(refs, options);
  const deps = await context.jobDeps();
  const deadline = deadlineIn(settings.timeoutMs.value, context.clock);
  const one = (ref: string): Promise<Outcome> =>
    fetchOne(context, protocol, ref, deps, { options, target, deadline });
  return severalOutcomes(refs, one, context.progress);
}

// Several results do not fit into one file.
async function targetFor(refs: readonly string[], options: OutputOptions): Promise<Target | undefined> {
  const target = targetOf(options);
  if (target?.kind !== 'file') {
    if (target !== undefined && refs.length > 1)
      throw usageError('Standard output takes one result: name one REF, or a folder by -o.');
    return target;
  }
  const isFolder =
    target.path.endsWith('/') || (await stat(target.path).catch(() => undefined))?.isDirectory() === true;
  if (isFolder) return { kind: 'folder', path: target.path };
  if (refs.length > 1) throw usageError(`--output names a file for ${refs.length} jobs: name a folder.`);
  return target;
}

interface Wanted {
  options: FetchOptions;
  target: Target | undefined;
  deadline: Deadline;
}

async function fetchOne(
  context: Context,
  protocol: Protocol,
  ref: string,
  deps: JobDeps,
  { options, target, deadline }: Wanted,
): Promise<Outcome> {
  const [{ jobFor }, { deliverExisting }] = await Promise.all([
    import('../../../jobs/ref.ts'),
    import('./deliver.ts'),
  ]);
  try {
    const job = await jobFor(ref, protocol, deps);
    const pending = options.wait === false ? await notFinished(job, protocol, deps) : undefined;
    if (pending !== undefined)
      return { ...pending, error: pending.error && withOutput(pending.error, options) };
    // Without -o the file is named after the job, in this folder.
    const place: Target = target ?? { kind: 'file', path: `${job.id}.mp4` };
    const goal = goalOf('fetch', 'file', place);
    const wanted = { goal, target: place, force: options.force ?? false, deadline };
    return await deliverExisting(context, protocol, job, deps, wanted, options);
  } catch (error) {
    return { json: {}, error: toMgwError(error) };
  }
}

/** The outcome of one look at a job that has not finished; undefined where there is something to save or to tell. */
async function notFinished(job: Job, protocol: Protocol, deps: JobDeps): Promise<Outcome | undefined> {
  if (job.handle === undefined || job.state === 'succeeded') return undefined;
  const { observe } = await import('../../../jobs/observe.ts');
  const seen = await observe(job, protocol, deps);
  if (seen.job.state !== 'queued' && seen.job.state !== 'running') return undefined;
  const error = problemOf(seen.job, seen.verdict, deps.clock.now()) ?? pendingError(seen.job);
  return { json: { job: jobView(seen.job) }, error: error.with({ job: seen.job }) };
}
