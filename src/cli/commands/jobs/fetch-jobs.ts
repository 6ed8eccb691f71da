import { resolve } from 'node:path';
import { deadlineIn, type Deadline } from '../../../clock.ts';
import { toMgwError, type MgwError } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { pendingError } from '../../../jobs/errors.ts';
import {
  fetchPlace,
  fileCount,
  makeFolderOf,
  targetsIn,
  type FetchPlace,
} from '../../../jobs/fetch-place.ts';
import { goalOf, type Target } from '../../../jobs/target.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { withOutput } from '../../../flows/next.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { severalOutcomes } from '../../output/several.ts';
import { readRefs } from '../../refs.ts';
import { checkStdout, targetOf, type OutputOptions } from '../../wait-options.ts';
import { problemOf } from '../video/status.ts';

/** The options of the commands that fetch. */
export interface FetchOptions extends OutputOptions {
  wait?: boolean;
}

/** A job that a REF names, and the protocol that it goes by; none for speech. */
export interface FoundJob {
  job: Job;
  protocol?: Protocol;
}

/** Finds the job of a REF. @throws MgwError where there is none. */
export type FindJob = (ref: string, deps: JobDeps) => Promise<FoundJob>;

// Each may be waiting: a few that are stuck must not keep the others, nor a thousand downloads begin at once.
const mostAtOnce = 32;

/**
 * Waits for jobs and saves their results; nothing here can pay. Where each goes is known, and no two of them go to one
 * file, before the first is fetched.
 * @throws MgwError('usage') where that is not so.
 */
export async function fetchJobs(
  context: Context,
  given: string[],
  options: FetchOptions,
  find: FindJob,
): Promise<Outcome> {
  checkStdout(context, options);
  const refs = await readRefs(given, context.io);
  const place = await fetchPlace(targetOf(options), refs.length);
  const { timeoutMs } = await context.settings();
  const deps = await context.jobDeps();
  const deadline = deadlineIn(timeoutMs.value, context.clock);
  const plan = await planned(refs, place, deps, find);
  const one = (ref: string): Promise<Outcome> => {
    const each = plan.get(ref);
    if (each === undefined || 'error' in each) return Promise.resolve({ json: {}, error: each?.error });
    return fetchOne(context, each, deps, { options, place, deadline });
  };
  return severalOutcomes([...plan.keys()], one, context.progress, mostAtOnce);
}

type Planned = FoundJob & { target: Target };

/** Each job once, whatever number of REFs name it, with its place. */
async function planned(
  refs: readonly string[],
  place: FetchPlace,
  deps: JobDeps,
  find: FindJob,
): Promise<Map<string, Planned | { error: MgwError }>> {
  const plan = new Map<string, Planned | { error: MgwError }>();
  const found = new Map<string, FoundJob & { ref: string }>();
  for (const ref of refs) {
    try {
      const each = await find(ref, deps);
      if (!found.has(each.job.id)) found.set(each.job.id, { ...each, ref });
    } catch (error) {
      plan.set(ref, { error: toMgwError(error) });
    }
  }
  const all = [...found.values()];
  const targets = targetsIn(
    place,
    all.map(({ job, protocol }, index) => ({ job, index: index + 1, count: fileCount(job, protocol) })),
  );
  for (const [index, { ref, ...each }] of all.entries()) {
    const target = targets[index];
    if (target !== undefined) plan.set(ref, { ...each, target });
  }
  return plan;
}

interface Wanted {
  options: FetchOptions;
  place: FetchPlace;
  deadline: Deadline;
}

async function fetchOne(
  context: Context,
  { job, protocol, target }: Planned,
  deps: JobDeps,
  { options, place, deadline }: Wanted,
): Promise<Outcome> {
  try {
    await makeFolderOf(place, target);
    if (protocol === undefined) return await fetchSpeech(context, job, target, deps, options, deadline);
    const pending = options.wait === false ? await notFinished(job, protocol, deps) : undefined;
    if (pending !== undefined)
      return { ...pending, error: pending.error && withOutput(pending.error, options) };
    const wanted = {
      goal: goalOf('fetch', 'file', target),
      target,
      force: options.force ?? false,
      deadline,
    };
    const { deliverExisting } = await import('../video/deliver.ts');
    return await deliverExisting(context, protocol, job, deps, wanted, options);
  } catch (error) {
    return { json: {}, error: toMgwError(error) };
  }
}

async function fetchSpeech(
  context: Context,
  job: Job,
  target: Target,
  deps: JobDeps,
  { force = false }: FetchOptions,
  deadline: Deadline,
): Promise<Outcome> {
  const [{ deliverSaved }, { FileSink }, { speechProblem }, { StreamSink }] = await Promise.all([
    import('../../../speech/deliver-saved.ts'),
    import('../../../speech/file-sink.ts'),
    import('../../../speech/problem.ts'),
    import('../../../speech/stream-sink.ts'),
  ]);
  const error = speechProblem(job);
  if (error !== undefined) return { json: { job: jobView(job) }, error };
  const mime = job.files[0]?.mime ?? '';
  const sink =
    target.kind === 'stdout'
      ? new StreamSink(context.io.stdout)
      : new FileSink({ target: resolve(target.path), force, mime });
  const file = await deliverSaved(job, sink, deadline, deps);
  const last = (await deps.ledger.read(job.id)) ?? job;
  return { json: { job: jobView(last), files: file === undefined ? [] : [file] }, text: file?.path };
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
