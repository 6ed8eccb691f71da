import { createReadStream, rmdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { MgwError, usageError } from '../errors.ts';
import { speedometer } from '../http/download.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { checkOutput } from '../files/publish.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { isFolder, makeTempFolder } from '../files/make-folder.ts';
import type { Protocol } from '../protocols/protocol.ts';
import type { JobDeps } from './order.ts';
import { fetchCommand, isLoss } from './errors.ts';
import { lockOutput, identityOf, removeJobLeftovers, bestEffort } from './lock-output.ts';
import { inlineMedia } from './inline-media.ts';
import { savedText, stdoutText } from './mark.ts';
import { mismatchText } from './receipt.ts';
import { requestedVideos } from '../protocols/requested-value.ts';
import { countsText } from './fetch-place.ts';
import { saveResult, type Place, type SaveOptions } from './save.ts';
import { isSameOutput, pathsAt, type Target } from './output.ts';
import { watch, type WatchedJob, type WatchOptions } from './watch.ts';

/** Options for fetching results: the target, and how to wait and save. */
export interface FetchOptions extends WatchOptions, SaveOptions {
  target: Target;
  /** The file of each result, in order, if it was saved elsewhere. Such a result is neither fetched nor returned. */
  savedFiles?: readonly (JobFile | undefined)[] | undefined;
  /** Writes bytes to standard output, in order. */
  toStdout: (bytes: Uint8Array) => Promise<void>;
}

// The start of the name of the temporary folder for a result that is written to standard output.
const tempPrefix = 'mgw-';

type FileTarget = Target & { kind: 'file' };

/**
 * Checks, before anything is paid for, that `count` files can be written to a target.
 * @throws MgwError('output_exists' or 'local_io'), exit 10; 'usage' if several files would go to standard output.
 */
export function checkTargetFree(target: Target, count: number, force: boolean): void {
  if (target.kind === 'stdout') {
    checkOneForStdout(count);
    rmdirSync(makeTempFolder(tempPrefix));
    return;
  }
  const paths = pathsAt(target.path, count);
  // If the target is a folder, numbered files next to that folder would be unexpected. A trailing slash also means a
  // folder, but is lost when the path is resolved.
  const isMeantAsFolder = target.path.endsWith('/') || (count > 1 && isFolder(target.path));
  if (isMeantAsFolder) checkOutput(target.path, { force });
  for (const path of paths) checkOutput(path, { force });
}

// Refuses several videos on standard output, because concatenated videos are not a valid video.
function checkOneForStdout(count: number, job?: Job): void {
  if (count <= 1) return;
  const text = `There are ${count} videos, but standard output can hold only one: save them with -o FILE.`;
  if (job === undefined) throw usageError(text);
  const next = [...fetchCommand(job), '-o', `${job.id}.mp4`];
  throw new MgwError('local_io', text, { charged: 'yes', retry: 'never', next, job });
}

/**
 * Waits for a job and saves its results. Each file is complete, verified and recorded, and its name never comes from
 * the server. Intact files of an earlier run are not replaced. A failure never causes another submission (design 6).
 * @throws MgwError as `watch` does; exit 9 if the result is gone or broken, 10 if it cannot be saved, 3 if the result's
 * URL requires the key but is not trusted.
 */
export async function fetchResults(
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  options: FetchOptions,
): Promise<JobFile[]> {
  const { target } = options;
  if (target.kind !== 'stdout') return fetchTo(target, job, protocol, deps, options);
  checkOneForStdout(job.record.results ?? requestedVideos(job), job);
  if (options.mark) deps.note(stdoutText);
  const tempFolder = makeTempFolder(tempPrefix, 'yes');
  try {
    const fileTarget: FileTarget = { kind: 'file', path: join(tempFolder, 'result.mp4') };
    const files = await fetchTo(fileTarget, job, protocol, deps, { ...options, record: false, mark: false });
    checkOneForStdout(files.length, job);
    for (const file of files) await copyTo(file.path, options.toStdout, deps.clock);
    const stdoutFiles = files.map((file) => ({ ...file, path: '-' }));
    for (const file of stdoutFiles)
      if (file.mismatches !== undefined && !options.strict) deps.note(mismatchText(file));
    return stdoutFiles;
  } finally {
    await bestEffort(deps, () => rm(tempFolder, { recursive: true, force: true }));
  }
}

// Writes a complete, verified file to standard output. A write to a pipe succeeds even if the bytes are never read. To
// detect a reader that has closed the pipe (`head -c 10`), the last byte is written separately, after a delay.
async function copyTo(
  path: string,
  write: (bytes: Uint8Array) => Promise<void>,
  clock: Clock,
): Promise<void> {
  let lastByte: Uint8Array = Buffer.alloc(0);
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) {
    const bytes = chunk as Uint8Array;
    await write(Buffer.concat([lastByte, bytes.subarray(0, -1)]));
    lastByte = bytes.subarray(-1);
  }
  await clock.sleep(readerCloseMs);
  await write(lastByte);
}

/** How long to wait for a reader to close the pipe after it has read enough, in ms. */
const readerCloseMs = 50;

async function fetchTo(
  target: FileTarget,
  job: Job,
  protocol: Protocol,
  deps: JobDeps,
  options: FetchOptions,
): Promise<JobFile[]> {
  const savedFiles = await findSavedFiles(job, target);
  if (savedFiles !== undefined) {
    if (options.mark && savedFiles.some(({ provenance }) => !provenance?.includes('xmp')))
      deps.note(savedText);
    return withoutLeftovers(savedFiles, job, deps);
  }
  const [path = ''] = pathsAt(target.path, 1, requestedVideos(job));
  const locks = new Map<string, OutputLock>();
  const lock = async (place: Place): Promise<OutputLock> => {
    const identity = identityOf(job, place.index);
    const outputLock =
      locks.get(place.path) ??
      (await lockOutput(place.path, deps, { identity, job, deadline: options.deadline }));
    locks.set(place.path, outputLock);
    return outputLock;
  };
  const speed = speedometer(deps.clock, 0);
  const inline = inlineMedia({
    lock: () => lock({ path, index: 0 }),
    onBytes: (bytes) => options.onProgress?.({ bytes, bytesPerSecond: speed(bytes) }),
  });
  let files: JobFile[];
  try {
    const watchedJob = await watch(job, protocol, deps, { ...options, openSink: inline.openSink });
    // If two processes fetch one job, the second waits and then finds the file.
    await lock({ path, index: 0 });
    const latest = (await deps.ledger.read(job.id)) ?? watchedJob.job;
    const savedByOther = await findSavedFiles(latest, target);
    files =
      savedByOther ??
      (await saveAll(target, { ...watchedJob, job: latest }, protocol, deps, { ...options, inline, lock }));
  } finally {
    for (const outputLock of locks.values()) await bestEffort(deps, () => outputLock.release());
  }
  return withoutLeftovers(files, job, deps);
}

// Removes the leftovers of earlier runs, because leftovers are useless once the files exist.
async function withoutLeftovers(files: JobFile[], job: Job, deps: JobDeps): Promise<JobFile[]> {
  const paths = files.map(({ path }) => path);
  await removeJobLeftovers(job, paths, deps);
  return files;
}

async function saveAll(
  target: FileTarget,
  watchedJob: WatchedJob,
  protocol: Protocol,
  deps: JobDeps,
  options: Parameters<typeof saveResult>[4] & Pick<FetchOptions, 'savedFiles'>,
): Promise<JobFile[]> {
  const { observation, job } = watchedJob;
  const requested = requestedVideos(job);
  // A later response may list fewer results than the first one. The missing results were paid for too.
  const count = Math.max(observation.results.length, job.record.results ?? 0);
  const paths = pathsAt(target.path, count, requested);
  if (paths.length < requested && options.strict !== true) deps.note(countsText(requested, paths.length));
  const isNumbered = Math.max(paths.length, requested) > 1;
  const files: JobFile[] = [];
  const losses: MgwError[] = [];
  for (const [index, path] of paths.entries()) {
    if (options.savedFiles?.[index] !== undefined) continue;
    try {
      const place = { index, path, sample: isNumbered ? index + 1 : undefined };
      files.push(await saveResult(watchedJob, place, protocol, deps, options));
    } catch (error) {
      if (!isLoss(error)) throw error;
      if (losses.push(error) > 1) deps.note(error.message);
    }
  }
  const [firstLoss] = losses;
  if (firstLoss !== undefined) throw withCount(firstLoss, paths.length - losses.length, paths.length);
  return files;
}

function withCount(error: MgwError, saved: number, count: number): MgwError {
  if (count > 1) error.message = `${saved} of ${count} files are saved. ${error.message}`;
  return error;
}

/** Returns a job's files at the given target if an earlier run saved all of them and all are intact. */
async function findSavedFiles(job: Job, target: FileTarget): Promise<JobFile[] | undefined> {
  if (job.state !== 'succeeded' || job.files.length === 0) return undefined;
  const paths = pathsAt(target.path, job.record.results ?? 0, requestedVideos(job));
  const files = paths.map((path) => {
    const file = job.files.findLast((each) => isSameOutput(each.path, path));
    return file && { ...file, path };
  });
  if (files.length === 0) return undefined;
  const intact = await Promise.all(files.map(async (file) => file !== undefined && (await isIntact(file))));
  return intact.every(Boolean) ? files.filter((file) => file !== undefined) : undefined;
}
