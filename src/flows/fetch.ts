import { extname, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import type { Deadline } from '../clock.ts';
import { MgwError, toMgwError } from '../errors.ts';
import type { Goal, Job, JobFile } from '../job.ts';
import {
  failedError,
  noHandleError,
  noResultError,
  noSuchJob,
  pendingError,
  waitCommand,
} from '../jobs/errors.ts';
import { fetchPlace, fileCount, makeFoldersOf, withTargets, type FetchPlace } from '../jobs/fetch-place.ts';
import { hasResult, observe } from '../jobs/observe.ts';
import { stdoutText } from '../jobs/mark.ts';
import { checkReceipts } from '../jobs/receipt.ts';
import { inRun, onExisting } from '../jobs/run.ts';
import { goalOf, numberedPath, type Target } from '../jobs/output.ts';
import type { Protocol, QueryVerdict } from '../protocols/protocol.ts';
import type { FileSinkOptions } from '../speech/file-sink.ts';
import { isObjectUrl } from '../store-url.ts';
import { deliver, refuseStdout, type Delivered, type FlowHooks, type DeliveryOptions } from './deliver.ts';
import { findJobHere, type FoundJob } from './find-job.ts';
import type { FlowDeps } from './settings.ts';
import { isTooNew, lostTaskError, refusedError } from '../jobs/watch.ts';

/** A job after one query, and the error to report, if any. */
export interface QueriedJob {
  job: Job;
  error?: MgwError | undefined;
}

/** Queries the gateway once for a job's state, without waiting. @throws MgwError as `observe` does. */
export async function queryJob(job: Job, protocol: Protocol, deps: FlowDeps): Promise<QueriedJob> {
  if (job.state === 'sending') return { job };
  if (job.handle === undefined) return { job, error: noHandleError(job) };
  const { job: queried, verdict } = await observe(job, protocol, deps);
  if (verdict.kind !== 'observation')
    return { job: queried, error: queryError(queried, verdict, deps.clock.now()) };
  if (verdict.state === 'succeeded' && !hasResult(verdict))
    return { job: queried, error: noResultError(queried, verdict) };
  if (verdict.warning !== undefined) deps.note(verdict.warning);
  return { job: queried, error: queried.state === 'failed' ? failedError(queried) : undefined };
}

type FailedQuery = Exclude<QueryVerdict, { kind: 'observation' }>;

function queryError(job: Job, verdict: FailedQuery, now: number): MgwError | undefined {
  if (verdict.kind === 'again' && verdict.hasNoStateYet) return undefined;
  if (verdict.kind === 'unauthorized') return refusedError(verdict.failure, job);
  const { code, message, requestId } = verdict.failure;
  const details = { exit: 'unavailable', retry: 'safe', requestId } as const;
  if (verdict.kind === 'again') return new MgwError(code, message, details);
  if (!isTooNew(job, now)) return lostTaskError(verdict.failure, job);
  const text = `The gateway does not know the task ${job.handle ?? ''} yet: ${message}`;
  return new MgwError(code, text, { ...details, next: waitCommand(job) });
}

/** Waits until a job has succeeded, without saving anything. @throws MgwError as {@link fetch} does. */
export async function waitFor(
  { job, protocol }: FoundJob,
  deadline: Deadline,
  deps: FlowDeps,
  hooks: FlowHooks = {},
): Promise<Delivered> {
  if (protocol === undefined) return deliveredSpeech(job);
  return deliverFound(job, protocol, 'wait', { ask: 'finish', force: false, deadline }, deps, hooks);
}

/** A job and where to save its result. */
export interface PlannedFetch extends FoundJob {
  place: FetchPlace;
  target: Target;
}

/**
 * Finds the jobs that REFs name and decides where to save each result, before anything is fetched.
 * @param output the value of `-o`; if absent, each job's own output file
 * @param words the command, such as `jobs fetch`
 * @param protocol the protocol that every job must have
 * @returns each job once, even if several REFs refer to it, and an error for each REF without a job
 * @throws MgwError('usage') if two results would go to one file, or the output cannot hold all results.
 */
export async function planFetches(
  refs: readonly string[],
  output: Target | undefined,
  deps: FlowDeps,
  words: readonly string[],
  protocol?: Protocol,
): Promise<Map<string, PlannedFetch | { error: MgwError }>> {
  const place = await fetchPlace(output, refs.length);
  const plan = new Map<string, PlannedFetch | { error: MgwError }>();
  const foundJobs = new Map<string, FoundJob & { ref: string }>();
  for (const ref of refs) {
    try {
      const each = await findJobHere(ref, deps, words, protocol);
      if (!foundJobs.has(each.job.id)) foundJobs.set(each.job.id, { ...each, ref });
    } catch (error) {
      plan.set(ref, { error: toMgwError(error) });
    }
  }
  const jobs = [...foundJobs.values()].map((each, index) => ({
    ...each,
    index: index + 1,
    count: fileCount(each.job),
  }));
  for (const each of withTargets(place, jobs)) plan.set(each.ref, { ...each, place });
  return plan;
}

/** Options for fetching results. */
export interface FetchOptions {
  /** Whether to overwrite files at the target. */
  force: boolean;
  deadline: Deadline;
  /** Whether to exit 9 if a file differs from the request. The files are kept. */
  strict?: boolean | undefined;
  /** Whether to mark each MP4 as AI-generated. */
  mark?: boolean | undefined;
  /** Whether to wait. If false, the gateway is queried once, and an unfinished job is an error (exit 8). */
  wait?: boolean | undefined;
}

/**
 * Waits for a job and saves its result. Costs nothing. Speech is copied from an intact saved file, because the gateway
 * keeps no audio.
 * @throws MgwError: exit 3 key refused, 5 failed, 6 never sent, 7 unknown, 8 not finished at the deadline, 9 no result,
 * 10 cannot be saved, 130/143 interrupted.
 */
export async function fetch(
  { job, protocol, place, target }: PlannedFetch,
  { force, deadline, strict, mark, wait = true }: FetchOptions,
  deps: FlowDeps,
  hooks: FlowHooks & { stdout?: Writable } = {},
): Promise<Delivered> {
  await makeFoldersOf(place, target, fileCount(job));
  if (protocol === undefined) {
    const file = target.kind === 'stdout' ? target : { ...target, path: numberedPath(target.path, 0, 1) };
    return savedSpeech(job, file, { force, deadline, mark }, deps, hooks.stdout);
  }
  if (!wait) await checkFinished(job, protocol, deps);
  return deliverFound(
    job,
    protocol,
    'fetch',
    { ask: 'file', target, force, deadline, strict, mark },
    deps,
    hooks,
  );
}

/** Delivers the result of a job that was submitted earlier. @throws MgwError as {@link fetch} does. */
export async function deliverFound(
  job: Job,
  protocol: Protocol,
  command: Goal['command'],
  options: DeliveryOptions,
  deps: FlowDeps,
  hooks: FlowHooks = {},
): Promise<Delivered> {
  const goal = goalOf(command, options.ask, options.target);
  const run = await inRun(goal, deps, onExisting(job, deps), async (existing, runDeps) => {
    const files = await deliver(existing, protocol, options, runDeps, { ...hooks, isResumed: true });
    if (options.strict)
      checkReceipts((await runDeps.ledger.read(existing.id)) ?? existing, files, runDeps.note);
    return files;
  }).catch(async (error: unknown) => {
    if (toMgwError(error).handle !== undefined) throw error;
    // Another command may have removed the job before this run began, or later with --force.
    const jobState = await deps.ledger.claimState(job.id).catch(() => undefined);
    throw jobState === 'removed' ? noSuchJob(job.id) : error;
  });
  return { job: run.job, files: run.value, isResumed: true, delivered: run.delivered };
}

async function checkFinished(job: Job, protocol: Protocol, deps: FlowDeps): Promise<void> {
  if (job.state === 'succeeded') return;
  const queried = await queryJob(job, protocol, deps);
  if (queried.job.state !== 'queued' && queried.job.state !== 'running') return;
  throw (queried.error ?? pendingError(queried.job)).with({ job: queried.job });
}

async function deliveredSpeech(job: Job): Promise<Delivered> {
  const { speechProblem } = await import('../speech/earlier-run.ts');
  const problem = speechProblem(job);
  if (problem !== undefined) throw problem.with({ job });
  return { job, files: [], isResumed: true, delivered: async () => {} };
}

async function savedSpeech(
  job: Job,
  target: Target,
  { force, deadline, mark }: FetchOptions,
  deps: FlowDeps,
  stdout: Writable | undefined,
): Promise<Delivered> {
  const delivery = await deliveredSpeech(job);
  const [{ withObjects }, { checkCopyExtension }, { deliverSaved }, { FileSink }, { StreamSink }] =
    await Promise.all([
      import('./speak.ts'),
      import('../speech/compose.ts'),
      import('../speech/earlier-run.ts'),
      import('../speech/file-sink.ts'),
      import('../speech/sink.ts'),
    ]);
  const [saved] = job.files;
  if (saved !== undefined && target.kind !== 'stdout') checkCopyExtension(target.path, saved);
  // The copy keeps the recorded type of the saved file.
  const options = { force, mime: '', mark: mark ? deps.note : undefined };
  if (target.kind !== 'stdout' && isObjectUrl(target.path)) {
    const file = await objectOfSpeech(job, target.path, { ...options, deadline }, deps);
    return { ...delivery, job: (await deps.ledger.read(job.id)) ?? job, files: file ? [file] : [] };
  }
  if (mark && target.kind === 'stdout') deps.note(stdoutText);
  const sink =
    target.kind === 'stdout'
      ? stdout && new StreamSink(stdout)
      : new FileSink({ ...options, target: resolve(target.path) });
  if (sink === undefined) return refuseStdout();
  const file = await deliverSaved(job, withObjects(sink, deps, deadline), deadline, deps);
  const latestJob = (await deps.ledger.read(job.id)) ?? job;
  return { ...delivery, job: latestJob, files: file === undefined ? [] : [file] };
}

async function objectOfSpeech(
  job: Job,
  url: string,
  { force, deadline, ...options }: Omit<FileSinkOptions, 'target'> & { force: boolean; deadline: Deadline },
  deps: FlowDeps,
): Promise<JobFile | undefined> {
  const [
    { withObjects },
    { deliverSaved },
    { ObjectSink, localPath, removeUploadedSpeech, upload, withUploadLock },
  ] = await Promise.all([
    import('./speak.ts'),
    import('../speech/earlier-run.ts'),
    import('./object-output.ts'),
  ]);
  const path = await localPath(`${job.id}-1${extname(url)}`, deps);
  const sink = new ObjectSink(url, force, deps, { ...options, target: path });
  return withUploadLock(job, deadline, deps, async () => {
    const saved = await deliverSaved(job, withObjects(sink, deps, deadline), deadline, deps);
    if (saved === undefined) return undefined;
    const object = isObjectUrl(saved.path) ? saved : await upload(job, saved, url, { force, deadline }, deps);
    await removeUploadedSpeech(job, object, path, deps);
    return object;
  });
}
