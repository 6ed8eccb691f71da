import type { Deadline } from '../clock.ts';
import { exitCodes, MgwError } from '../errors.ts';
import type { DownloadProgress } from '../http/download.ts';
import { loadSites } from '../http/download/follow.ts';
import type { Milestone, Job, JobFile } from '../job.ts';
import { failedError, interruptedError, showCommand } from '../jobs/errors.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { checkTargetFree, fetchResults } from '../jobs/fetch.ts';
import { removeJobLeftovers } from '../jobs/lock-output.ts';
import { pathsAt, type Target } from '../jobs/output.ts';
import { watch, type WatchOptions } from '../jobs/watch.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { isObjectUrl } from '../store-url.ts';
import type { FlowDeps } from './settings.ts';
import { nextForOutput } from './next.ts';

/** The milestone to reach and how to save the result. */
export interface DeliveryOptions {
  ask: Milestone;
  /** Where to save the result; absent if it is not saved. */
  target?: Target | undefined;
  /** Whether to overwrite files at the target. */
  force: boolean;
  /** Whether to exit 9 if a file differs from the request. The files are kept. */
  strict?: boolean | undefined;
  /** Whether to mark each MP4 as AI-generated. */
  mark?: boolean | undefined;
  /** The file of each result, in order, if it was saved elsewhere. Such a result is not fetched. */
  savedFiles?: readonly (JobFile | undefined)[];
  deadline: Deadline;
}

/** Callbacks that report a flow's progress to the front end. */
export interface FlowHooks {
  /**
   * Called when the gateway has accepted the job and waiting begins. `isResumed`: whether an earlier run submitted the
   * job.
   */
  onAccepted?: ((job: Job, isResumed: boolean) => void) | undefined;
  /** Called after each poll. */
  onUpdate?: ((job: Job) => void) | undefined;
  /** Called when waiting has ended. */
  onEnd?: (() => void) | undefined;
  onProgress?: ((progress: DownloadProgress) => void) | undefined;
  /** Receives the result's bytes, in order, if the target is `stdout`. */
  toStdout?: ((bytes: Uint8Array) => Promise<void>) | undefined;
}

/** A flow's result. */
export interface Delivered {
  /** The job, as recorded at the end of the flow. */
  job: Job;
  files: JobFile[];
  /** Whether an earlier run had paid for the result, so this run submitted nothing. */
  isResumed: boolean;
  /**
   * Records whether the result was reported to the user. If it was reported, repeating the command makes, and charges
   * for, a new result (design 4).
   */
  delivered: (isReported?: boolean) => Promise<void>;
}

/**
 * Waits until an accepted job reaches the requested milestone, and saves its files. Costs nothing.
 * @throws MgwError as `watch` and `fetchResults` do.
 */
export async function deliver(
  job: Job,
  protocol: Protocol,
  options: DeliveryOptions,
  deps: FlowDeps,
  hooks: FlowHooks & { isResumed: boolean },
): Promise<JobFile[]> {
  if (options.target?.kind === 'file' && isObjectUrl(options.target.path))
    return deliverToBucket(job, options.target.path, protocol, options, deps, hooks);
  hooks.onAccepted?.(job, hooks.isResumed);
  try {
    return await waitAndSave(job, protocol, options, deps, hooks);
  } catch (thrown) {
    if (!(thrown instanceof MgwError)) throw thrown;
    const { target } = options;
    const error = thrown.with({ job: thrown.job ?? job });
    if (target === undefined || target.kind === 'stdout') throw error;
    // The job has failed, so partial files of earlier runs will never be completed.
    if (error.exitCode === exitCodes.failed)
      await removeJobLeftovers(job, pathsAt(target.path, 1, fileCount(job)), deps);
    const next = nextForOutput(error, job, target.path);
    throw next === undefined ? error : error.with({ next });
  } finally {
    hooks.onEnd?.();
  }
}

// Waits for the job before it locks the upload, so that each process with this job shows the job's state.
async function deliverToBucket(
  job: Job,
  url: string,
  protocol: Protocol,
  options: DeliveryOptions,
  deps: FlowDeps,
  hooks: FlowHooks & { isResumed: boolean },
): Promise<JobFile[]> {
  const { deliverToObjects } = await import('./object-output.ts');
  let [finishedJob, saveHooks] = [job, hooks];
  if (job.state !== 'succeeded') {
    await deliver(job, protocol, { ...options, ask: 'finish', target: undefined }, deps, hooks);
    finishedJob = (await deps.ledger.read(job.id)) ?? job;
    saveHooks = { ...hooks, isResumed: true, onAccepted: undefined, onUpdate: undefined };
  }
  const output = { url, requested: fileCount(finishedJob) };
  return deliverToObjects(finishedJob, output, options, deps, (path, savedFiles, ownDeps) => {
    const ownOptions = { ...options, target: { kind: 'file', path }, savedFiles, force: true } as const;
    return deliver(finishedJob, protocol, ownOptions, ownDeps, saveHooks);
  });
}

async function waitAndSave(
  job: Job,
  protocol: Protocol,
  { ask, target, savedFiles, force, deadline, mark, strict }: DeliveryOptions,
  deps: FlowDeps,
  { isResumed, onUpdate, onProgress, toStdout = refuseStdout }: FlowHooks & { isResumed: boolean },
): Promise<JobFile[]> {
  checkHandle(job, protocol);
  if (job.state === 'failed') throw failedError(job);
  const { soft } = deps.signals;
  if (ask === 'accept') {
    if (soft.aborted) throw interruptedError(soft, job, 'yes');
    return [];
  }
  const watchOptions: WatchOptions = {
    deadline,
    intervalMs: deps.pollIntervalMs,
    isImmediate: isResumed,
    onUpdate,
  };
  if (target !== undefined) {
    if (job.state !== 'succeeded') await loadSites(job.base_url);
    if (isResumed) await checkBeforeWait(job, target, fileCount(job), force, deps);
    const { key, trustedOrigins } = deps;
    const saveOptions = {
      target,
      savedFiles,
      force,
      mark,
      strict,
      key,
      trustedOrigins,
      toStdout,
      onProgress,
    };
    return fetchResults(job, protocol, deps, { ...watchOptions, ...saveOptions });
  }
  if (job.state !== 'succeeded' || job.record.results === 0) await watch(job, protocol, deps, watchOptions);
  return [];
}

// A run that resumes an unfinished job refuses an output that cannot be written before it waits, not afterwards.
async function checkBeforeWait(
  job: Job,
  target: Target,
  count: number,
  force: boolean,
  { ledger }: Pick<FlowDeps, 'ledger'>,
): Promise<void> {
  const isUnfinished = ({ state }: Job): boolean => state === 'queued' || state === 'running';
  if (target.kind === 'stdout' || !isUnfinished(job)) return;
  try {
    checkTargetFree(target, count, force);
  } catch (error) {
    // Another process may have saved the result since the job was read.
    if (!(error instanceof MgwError)) throw error;
    if (isUnfinished((await ledger.read(job.id)) ?? job))
      throw error.with({ charged: 'yes', retry: 'resume' });
  }
}

// Throws if the handle cannot be queried. The task was accepted and paid for, but no run can fetch its result.
function checkHandle(job: Job, protocol: Protocol): void {
  try {
    protocol.query(job.handle ?? '', job.model);
  } catch (error) {
    throw error instanceof MgwError ? error.with({ next: showCommand(job) }) : error;
  }
}

/** Rejects, because this caller has no standard output for media. */
export function refuseStdout(): Promise<never> {
  return Promise.reject(new MgwError('internal', 'This caller has no standard output for media.'));
}
