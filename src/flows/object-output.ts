import { readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { removeLeftovers } from '../files/output-lock.ts';
import { localError } from '../errors.ts';
import { makeOwnFolder } from '../files/make-folder.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { bestEffort, claimantOf, lockOutput, removeJobLeftovers } from '../jobs/lock-output.ts';
import { fetchCommand, isLoss } from '../jobs/errors.ts';
import { savedText } from '../jobs/mark.ts';
import { filesOfSample, numberedPath, pathsAt } from '../jobs/output.ts';
import { FileSink, type FileSinkOptions } from '../speech/file-sink.ts';
import type { RecoveredAudio } from '../speech/sink.ts';
import { alternativeOutput } from './next.ts';
import type { FlowDeps } from './settings.ts';

/** Options for uploading a result. */
interface UploadOptions {
  /** Whether to replace existing objects. */
  force: boolean;
  deadline: Deadline;
  /** The job's output, if it differs from the object's URL because the job has several results. */
  jobOutput?: string | undefined;
}

/** Where to save a job's results as objects. */
interface ObjectOutput {
  url: string;
  /** The number of results that the submission requested. */
  requested: number;
}

/**
 * Saves a job's results as objects (design 17). Each result is first completed and verified in a local file, which is
 * kept until the upload succeeds. A rerun uploads the kept files before it queries the gateway.
 * @param save saves the results at a local path, except those that already have a file in `savedFiles`, which has one
 * entry per result
 * @throws MgwError as `save` does; 'store' or 'output_exists' if the results cannot be uploaded, charged 'yes'.
 */
export async function deliverToObjects(
  job: Job,
  { url, requested }: ObjectOutput,
  options: UploadOptions & { mark?: boolean | undefined },
  deps: FlowDeps,
  save: (path: string, savedFiles: readonly (JobFile | undefined)[], deps: FlowDeps) => Promise<unknown>,
): Promise<JobFile[]> {
  return withUploadLock(job, options.deadline, deps, () =>
    saveAndUpload(job, { url, requested }, options, deps, save),
  );
}

/**
 * Runs `save` while no other process on this machine saves the job's results as objects. The names of the local files
 * do not depend on the URL, so one process could remove the files of another.
 */
export async function withUploadLock<T>(
  job: Job,
  deadline: Deadline,
  deps: FlowDeps,
  save: () => Promise<T>,
): Promise<T> {
  const lock = await lockOutput(await localPath(job.id, deps), deps, { identity: job.id, job, deadline });
  try {
    return await save();
  } finally {
    await bestEffort(deps, () => lock.release());
  }
}

async function saveAndUpload(
  job: Job,
  { url, requested }: ObjectOutput,
  options: UploadOptions & { mark?: boolean | undefined },
  deps: FlowDeps,
  save: (path: string, savedFiles: readonly (JobFile | undefined)[], deps: FlowDeps) => Promise<unknown>,
): Promise<JobFile[]> {
  // The name does not depend on the URL, so that a rerun with another URL finds the file.
  const path = await localPath(`${job.id}-{n}.mp4`, deps);
  const uploadAll = (): Promise<(JobFile | undefined)[]> =>
    uploadResults(job, { url, requested }, { ...options, jobOutput: url }, deps);
  const firstObjects = await uploadAll();
  if (options.mark && firstObjects.some((file) => file && !file.provenance?.includes('xmp')))
    deps.note(savedText);
  const objects = isComplete(firstObjects) ? firstObjects : await saveMissing();
  for (const each of pathsAt(path, objects.length)) await removeUploaded(job, each, deps);
  await removeJobLeftovers(job, pathsAt(path, objects.length), deps);
  return objects;

  async function saveMissing(): Promise<JobFile[]> {
    // Notes must name the object, not the local file that is uploaded to it.
    const localName = new RegExp(`${job.id}-(\\d+)\\.mp4`, 'g');
    const objectName = (_: string, number: string): string =>
      basename(numberedPath(url, Number(number) - 1, requested));
    const note = (text: string): void => deps.note(text.replace(localName, objectName));
    const loss = await save(path, firstObjects, { ...deps, note }).then(
      () => undefined,
      (error: unknown) => {
        if (isLoss(error)) return error;
        throw error;
      },
    );
    const files = await uploadAll();
    if (isComplete(files)) return files;
    throw (
      loss ??
      new MgwError('local_io', `A result of ${job.id} was changed or removed before it was uploaded.`, {
        ...{ charged: 'yes', retry: 'resume', job, next: [...fetchCommand(job), '-o', url] },
      })
    );
  }
}

function isComplete(files: readonly (JobFile | undefined)[]): files is readonly JobFile[] & JobFile[] {
  return files.length > 0 && !files.includes(undefined);
}

// Uploads the results that are complete in the upload folder. Returns the object of each result; undefined for a result
// that is neither in the store nor in the folder.
async function uploadResults(
  job: Job,
  { url, requested }: ObjectOutput,
  options: UploadOptions,
  deps: FlowDeps,
): Promise<(JobFile | undefined)[]> {
  const latest = (await deps.ledger.read(job.id)) ?? job;
  const count = latest.record.results ?? requested;
  const objects: (JobFile | undefined)[] = [];
  for (const [index, objectUrl] of pathsAt(url, count, requested).entries()) {
    const stored = latest.files.find((file) => file.path === objectUrl);
    if (stored !== undefined && (await (await deps.objects()).has(objectUrl, stored))) {
      objects.push(stored);
      continue;
    }
    const files = filesOfSample(latest, latest.files, index + 1, Math.max(count, requested));
    const uploadedFile = await firstIntact(files.filter((file) => dirname(file.path) === deps.uploadFolder));
    objects.push(uploadedFile && (await upload(latest, uploadedFile, objectUrl, options, deps)));
  }
  return objects;
}

async function firstIntact(files: readonly JobFile[]): Promise<JobFile | undefined> {
  for (const file of files) if (await isIntact(file)) return file;
  return undefined;
}

/** The name prefix of downloaded objects in the upload folder. */
export const copyPrefix = 'copy-';

/**
 * Returns the path of a local file in the upload folder. Creates the folder, and removes copies left by dead
 * processes.
 * @throws MgwError('local_io') if the folder cannot be created.
 */
export async function localPath(name: string, deps: FlowDeps): Promise<string> {
  const { uploadFolder } = deps;
  await makeOwnFolder(uploadFolder).catch((error: unknown) => {
    throw localError(error, uploadFolder, 'no');
  });
  await bestEffort(deps, async () => {
    for (const entry of await readdir(uploadFolder)) {
      const [, copy] = /^(copy-.+)\.part\.json$/.exec(entry) ?? [];
      if (copy !== undefined)
        await removeLeftovers(join(uploadFolder, copy), copyPrefix, await claimantOf(deps));
    }
  });
  return join(uploadFolder, name);
}

/** Removes an uploaded result's local file, and the leftovers of an upload that was killed. */
export async function removeUploaded({ id }: Pick<Job, 'id'>, path: string, deps: FlowDeps): Promise<void> {
  await bestEffort(deps, () => rm(path, { force: true }));
  await bestEffort(deps, async () => removeLeftovers(`${path}.upload`, id, await claimantOf(deps)));
}

/**
 * Removes the local files of uploaded speech: `path`, and the recorded files that runs kept after a failed upload.
 * Records that they no longer belong to the job.
 */
export async function removeUploadedSpeech(
  job: Job,
  object: JobFile,
  path: string,
  deps: FlowDeps,
): Promise<void> {
  await removeUploaded(job, path, deps);
  const { files } = (await deps.ledger.read(job.id)) ?? job;
  for (const file of files.filter((each) => dirname(each.path) === deps.uploadFolder)) {
    await bestEffort(deps, () =>
      deps.ledger.append(job.id, { type: 'file', file: object, instead_of: file.path }),
    );
    await removeUploaded(job, file.path, deps);
  }
}

/**
 * Uploads a job's file, records the object in place of the file, and removes the file. If the upload fails, the file is
 * kept.
 * @throws MgwError('store' or 'output_exists'), charged 'yes', with the command that uploads the file.
 */
export async function upload(
  job: Job,
  file: JobFile,
  url: string,
  { force, deadline, jobOutput = url }: UploadOptions,
  deps: FlowDeps,
): Promise<JobFile> {
  const { ledger } = deps;
  // Only one process on this machine uploads the file. A second process waits, then finds the object.
  const lock = await lockOutput(`${file.path}.upload`, deps, { identity: job.id, job, deadline });
  try {
    const latestJob = (await ledger.read(job.id)) ?? job;
    const earlierUploads = (latestJob.record.uploads ?? []).filter((each) => each.url === url);
    const store = await deps.objects();
    await store.put(url, file, {
      force,
      earlierUploads,
      onStarted: (started) => ledger.append(job.id, { type: 'uploading', url, ...started }),
    });
    const object = { ...file, path: url };
    await ledger.append(job.id, { type: 'file', file: object, instead_of: file.path });
    await bestEffort(deps, () => rm(file.path, { force: true }));
    return object;
  } catch (error) {
    throw uploadError(error, file, job, jobOutput, force);
  } finally {
    await bestEffort(deps, () => lock.release());
  }
}

function uploadError(error: unknown, { path }: JobFile, job: Job, output: string, force: boolean): unknown {
  if (!(error instanceof MgwError)) return error;
  const nextOutput = alternativeOutput(error, output) ?? output;
  const next = ['mgw', 'jobs', 'fetch', job.id, '-o', nextOutput, ...(force ? ['--force'] : [])];
  const paidError = error.with({ charged: 'yes', retry: 'resume', job, next });
  if (error.code === 'store' || error.code === 'output_exists')
    paidError.message = `${error.message} The result is kept as ${path}.`;
  return paidError;
}

/** A sink for speech that is saved as an object. It writes the local file that is later uploaded. */
export class ObjectSink extends FileSink {
  readonly #url: string;
  readonly #force: boolean;
  readonly #deps: FlowDeps;

  constructor(url: string, force: boolean, deps: FlowDeps, options: Omit<FileSinkOptions, 'force'>) {
    super({ ...options, force: true });
    this.#url = url;
    this.#force = force;
    this.#deps = deps;
  }

  override async open(isBegun?: boolean): Promise<void> {
    await (await this.#deps.objects()).checkFree(this.#url, this.#force);
    await super.open(isBegun);
  }

  override async recover(candidates: readonly JobFile[]): Promise<RecoveredAudio | undefined> {
    const pattern = this.#url.split('{id}');
    const matchesPattern = ({ path }: JobFile): boolean =>
      path.startsWith(pattern[0] ?? '') && path.endsWith(pattern.at(-1) ?? '');
    for (const file of candidates.filter(matchesPattern))
      if (await (await this.#deps.objects()).has(file.path, file)) return { file };
    return super.recover(candidates);
  }
}
