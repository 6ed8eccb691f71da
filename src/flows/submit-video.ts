import { join, resolve } from 'node:path';
import type { Deadline } from '../clock.ts';
import { localError, MgwError, usageError } from '../errors.ts';
import { isFolder, makeFolder as makeOutputFolder } from '../files/make-folder.ts';
import { version } from '../installation.ts';
import type { Job } from '../job.ts';
import { createOrResume } from '../jobs/create-or-resume.ts';
import { acceptedJobError, fetchCommand } from '../jobs/errors.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { checkTargetFree } from '../jobs/fetch.ts';
import { fingerprintOf, type Order } from '../jobs/order.ts';
import { checkReceipts, checkSidecarsFree, writeSidecars } from '../jobs/receipt.ts';
import { type Began, inRun } from '../jobs/run.ts';
import { submit } from '../jobs/submit.ts';
import { goalOf, outputOf, pathsAt, type Target } from '../jobs/output.ts';
import { videoCount } from '../protocols/protocol.ts';
import { isObjectUrl, sidecarMessage } from '../store-url.ts';
import { withBudget } from './budgets.ts';
import type { ComposedVideo } from './compose-video.ts';
import { deliver, type Delivered, type FlowHooks, type DeliveryOptions } from './deliver.ts';
import type { FlowDeps } from './settings.ts';

/** Options for a paid video. */
export interface VideoSubmission extends DeliveryOptions {
  /** A key that permanently names the job. */
  key?: string | undefined;
  /** Words for finding the job later. */
  tags?: string[] | undefined;
  /** Whether to pay for a new take even if the same request was paid for before. */
  fresh: boolean;
  /**
   * If set, a job in doubt under any key blocks the submission. If that job is still being sent, the submission first
   * waits for it until this deadline.
   */
  blockedByAnyDoubt?: Deadline;
  /** Whether to write a sidecar next to each file. */
  sidecar: boolean;
  /** The maximum that all runs of this submission may spend in total, as an exact decimal. */
  budget?: string | undefined;
  /**
   * Creates a file's folder; does nothing for an object. If set, `{job}` in the target is replaced by the job's id, as
   * in a batch.
   */
  makeFolder?: ((path: string) => Promise<void>) | undefined;
}

/**
 * Submits a video, then waits for it and saves it if the options require that. Resumes the job that another run of the
 * same submission has paid for. If there is none, creates a job and pays for it (design 4, 5). Before anything is paid
 * for, checks that the result can be saved.
 * @throws MgwError: exit 2 if the key belongs to a different request, 3 or 4 rejected, 5 failed, 6 never sent, 7
 * unknown, 8 not finished at the deadline, 9 no result or a strict mismatch, 10 cannot be recorded or saved, 12 over a
 * budget, 130/143 interrupted.
 */
export async function submitVideo(
  video: ComposedVideo,
  options: VideoSubmission,
  deps: FlowDeps,
  hooks: FlowHooks = {},
): Promise<Delivered> {
  const order = videoOrder(video, options, deps);
  const paidDeps = await withBudget(deps, 'command', fingerprintOf(order, deps.gateway), options.budget);
  const begin = (began: Began): Promise<Job> => createOrResume(order, paidDeps, began);
  return payAndDeliver(order, video, options, paidDeps, hooks, begin);
}

/** Builds the order for a video. Every command that pays for a video uses this function. */
export function videoOrder(
  video: ComposedVideo,
  options: VideoSubmission,
  { objects }: Pick<FlowDeps, 'objects'>,
): Order {
  const { protocol, body, userBody, exchange, endpoint, findVideos, upload } = video;
  const { ask, target, key, tags, fresh, blockedByAnyDoubt, deadline } = options;
  return {
    protocol: protocol.name,
    model: protocol.modelOf(body),
    body,
    userBody,
    exchange,
    endpoint,
    upload,
    auth: protocol.auth,
    read: (reply) => protocol.readSubmission(reply, body),
    key,
    tags,
    fresh,
    blockedByAnyDoubt,
    goal: goalOf('submit', ask, target),
    deadline,
    checkBeforePaying: async () => {
      await findVideos?.();
      await checkTargets(videoCount(protocol, body), options, objects);
    },
  };
}

/**
 * Sends the job that `begin` finds or creates, unless it was sent before, and delivers it.
 * @throws MgwError as {@link submitVideo} does.
 */
export async function payAndDeliver(
  order: Order,
  { protocol }: Pick<ComposedVideo, 'protocol'>,
  options: VideoSubmission,
  deps: FlowDeps,
  hooks: FlowHooks,
  begin: (began: Began) => Promise<Job>,
): Promise<Delivered> {
  let accepted: Job | undefined;
  try {
    const { job, value, delivered } = await inRun(order.goal, deps, begin, async (begunJob, runDeps) => {
      const { job: submitted, isResumed } = await submit(begunJob, order, runDeps);
      accepted = submitted;
      const target = await targetFor(accepted, fileCount(accepted), options);
      // The check before the payment does not cover a resumed job.
      if (options.sidecar && target !== undefined)
        await checkSidecarsFree(target, fileCount(accepted), options.force, 'yes');
      const allHooks = { ...hooks, isResumed };
      const files = await deliver(accepted, protocol, { ...options, target }, runDeps, allHooks);
      if (options.sidecar || options.strict) {
        const latest = (await runDeps.ledger.read(accepted.id)) ?? accepted;
        if (options.sidecar) await writeSidecars(latest, files, version, options.force);
        if (options.strict) checkReceipts(latest, files, runDeps.note);
      }
      return { files, isResumed };
    });
    return { job, ...value, delivered };
  } catch (error) {
    throw acceptedJobError(error, accepted);
  }
}

/**
 * If the output is a folder, returns a target named after the job's id, as `fetch` does. Creates a missing folder
 * before anything is paid for.
 * @throws MgwError('local_io') if the folder cannot be created.
 */
export async function inFolder(target: Target | undefined): Promise<Target | undefined> {
  if (target === undefined || target.kind === 'stdout' || isObjectUrl(target.path)) return target;
  const { path } = target;
  const isFolderPath = /[\\/]$/.test(path);
  if (!isFolderPath && !isFolder(path)) return target;
  if (isFolderPath)
    await makeOutputFolder(resolve(path), 0o777).catch((error: unknown) => {
      throw localError(error, path, 'no');
    });
  return { kind: 'file', path: join(path, '{id}.mp4') };
}

async function targetFor(
  job: Job,
  count: number,
  { target, makeFolder }: VideoSubmission,
): Promise<Target | undefined> {
  if (target === undefined || target.kind === 'stdout') return target;
  if (makeFolder === undefined) return { ...target, path: outputOf(target.path, job.id) };
  const path = target.path.replaceAll('{job}', job.id);
  await makeFolders(path, count, makeFolder).catch((error: unknown) => {
    if (!(error instanceof MgwError)) throw error;
    throw error.with({ charged: 'yes', retry: 'resume', next: [...fetchCommand(job), '-o', './'] });
  });
  return { ...target, path };
}

// Each file may have its own folder, as in `take{n}/clip.mp4`.
async function makeFolders(
  path: string,
  count: number,
  makeFolder: (path: string) => Promise<void>,
): Promise<void> {
  for (const each of pathsAt(path, count)) await makeFolder(each);
}

async function checkTargets(
  count: number,
  options: VideoSubmission,
  objects: FlowDeps['objects'],
): Promise<void> {
  const { target, force, sidecar, makeFolder } = options;
  if (target === undefined) return;
  if (target.kind === 'file' && isObjectUrl(target.path)) {
    if (sidecar) throw usageError(sidecarMessage);
    const store = await objects();
    for (const url of pathsAt(target.path, count)) await store.checkFree(url, force);
    return;
  }
  if (makeFolder !== undefined && target.kind !== 'stdout') {
    // The job's id is new, so no file can exist at a path that contains it.
    if (target.path.includes('{job}')) return;
    await makeFolders(target.path, count, makeFolder);
  }
  checkTargetFree(target, count, force);
  if (sidecar) await checkSidecarsFree(target, count, force);
}
