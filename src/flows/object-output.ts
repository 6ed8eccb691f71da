import { createHash } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { extname, join } from 'node:path';
import type { Deadline } from '../clock.ts';
import { MgwError } from '../errors.ts';
import { removeLeftovers } from '../files/output-lock.ts';
import { localError } from '../errors.ts';
import { makeOwnFolder } from '../files/make-folder.ts';
import type { Job, JobFile } from '../job.ts';
import { bestEffort, claimantOf, lockOutput, removeJobLeftovers } from '../jobs/lock-output.ts';
import { numberedPath, pathsAt } from '../jobs/output.ts';
import { FileSink, type FileSinkOptions } from '../speech/file-sink.ts';
import type { RecoveredAudio } from '../speech/sink.ts';
import { alternativeOutput } from './next.ts';
import type { FlowDeps } from './settings.ts';

/** Options for uploading a result. */
interface UploadOptions {
  /** Whether to replace existing objects. */
  force: boolean;
  deadline: Deadline;
}

/**
 * Saves a job's results as objects (design 17). Each result is first completed and verified in a local file, which is
 * kept until the upload succeeds.
 * @param save saves the results at a local path
 * @throws MgwError as `save` does; 'store' or 'output_exists' if the results cannot be uploaded, charged 'yes'.
 */
export async function deliverToObjects(
  job: Job,
  url: string,
  options: UploadOptions,
  deps: FlowDeps,
  save: (path: string) => Promise<JobFile[]>,
): Promise<JobFile[]> {
  const path = await localPath(`${job.id}-`, url, deps);
  const uploaded = await findUploadedFiles(job, url, deps);
  if (uploaded !== undefined) {
    const paths = pathsAt(path, uploaded.length);
    await removeJobLeftovers(job, paths, deps);
    for (const each of paths) await removeUploaded(job, each, deps);
    return uploaded;
  }
  const stem = path.slice(0, path.length - extname(path).length);
  const files: JobFile[] = [];
  for (const file of await save(path)) {
    const [, number] = /^-(\d+)\./.exec(file.path.slice(stem.length)) ?? [];
    const object = number === undefined ? url : numberedPath(url, Number(number) - 1, 2);
    files.push(await upload(job, file, object, options, deps));
  }
  return files;
}

// Returns the results if an earlier run uploaded all of them but died before it reported success.
async function findUploadedFiles(job: Job, url: string, deps: FlowDeps): Promise<JobFile[] | undefined> {
  const count = job.record.results ?? 0;
  const urls = pathsAt(url, count);
  const files = urls.flatMap((each) => job.files.find(({ path }) => path === each) ?? []);
  if (files.length === 0 || files.length < count) return undefined;
  const store = await deps.objects();
  for (const file of files) if (!(await store.has(file.path, file))) return undefined;
  return files;
}

/** The name prefix of downloaded objects in the upload folder. */
export const copyPrefix = 'copy-';

/**
 * Returns the path of an object's local file in the upload folder. Creates the folder, and removes copies left by dead
 * processes.
 * @throws MgwError('local_io') if the folder cannot be created.
 */
export async function localPath(prefix: string, url: string, deps: FlowDeps): Promise<string> {
  const { uploadFolder } = deps;
  await makeOwnFolder(uploadFolder).catch((error: unknown) => {
    throw localError(error, uploadFolder, 'no');
  });
  await bestEffort(deps, async () => {
    for (const name of await readdir(uploadFolder)) {
      const [, copy] = /^(copy-.+)\.part\.json$/.exec(name) ?? [];
      if (copy !== undefined)
        await removeLeftovers(join(uploadFolder, copy), copyPrefix, await claimantOf(deps));
    }
  });
  const name = createHash('sha256').update(url).digest('hex').slice(0, 12);
  return join(uploadFolder, `${prefix}${name}${extname(url)}`);
}

/** Removes an uploaded result's local file, and the leftovers of an upload that was killed. */
export async function removeUploaded({ id }: Pick<Job, 'id'>, path: string, deps: FlowDeps): Promise<void> {
  await bestEffort(deps, () => rm(path, { force: true }));
  await bestEffort(deps, async () => removeLeftovers(`${path}.upload`, id, await claimantOf(deps)));
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
  { force, deadline }: UploadOptions,
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
    throw uploadError(error, file, job, url, force);
  } finally {
    await bestEffort(deps, () => lock.release());
  }
}

function uploadError(error: unknown, { path }: JobFile, job: Job, url: string, force: boolean): unknown {
  if (!(error instanceof MgwError)) return error;
  const output = alternativeOutput(error, url) ?? url;
  const next = ['mgw', 'jobs', 'fetch', job.id, '-o', output, ...(force ? ['--force'] : [])];
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
