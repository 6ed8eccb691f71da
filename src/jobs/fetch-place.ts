import { stat } from 'node:fs/promises';
import { dirname, extname } from 'node:path';
import { messageOf, usageError, localError } from '../errors.ts';
import { makeFolder } from '../files/make-folder.ts';
import type { Job } from '../job.ts';
import { at, type Json } from '../json.ts';
import { requestedValue, requestedVideos, missingVideos, promptOf } from '../protocols/requested-value.ts';
import {
  outputPath,
  outputPlace,
  sameFileName,
  slugOf,
  type OutputPlace,
  goalOutput,
  pathsAt,
  type Target,
} from './output.ts';
import { isObjectUrl } from '../store-url.ts';

/** Where the results of one or more jobs are saved, according to `-o`. */
export type FetchPlace =
  | { kind: 'stdout' }
  | { kind: 'file'; path: string }
  /** A folder (mgw chooses the file names) or a template. A missing folder is created. */
  | { kind: 'names'; place: OutputPlace; isFolder: boolean }
  /** The output file of each job's own command. */
  | { kind: 'default' };

/** A job to fetch, its position (starting at 1), and its number of files. */
export interface FetchItem {
  job: Job;
  index: number;
  count: number;
}

/**
 * Interprets `-o` for `count` jobs.
 * @throws MgwError('usage') if `-o` is one file for several jobs, or an invalid template.
 */
export async function fetchPlace(target: Target | undefined, count: number): Promise<FetchPlace> {
  if (target === undefined) return { kind: 'default' };
  if (target.kind === 'stdout') {
    if (count > 1)
      throw usageError('Standard output can hold only one result: specify one REF, or a folder with -o.');
    return target;
  }
  const { path } = target;
  if (/\{[^{}]*\}/.test(path) && !/^[^{}]*(\{n\}[^{}]*)+$/.test(path))
    return { kind: 'names', place: templateOf(path), isFolder: false };
  if (
    path.endsWith('/') ||
    (!isObjectUrl(path) && (await stat(path).catch(() => undefined))?.isDirectory() === true)
  )
    return { kind: 'names', place: templateOf(path.endsWith('/') ? path : `${path}/`), isFolder: true };
  if (count > 1)
    throw usageError(
      `--output is one file, but there are ${count} jobs: use a folder, or a template such as {id}.{ext}.`,
    );
  return { kind: 'file', path };
}

function templateOf(path: string): OutputPlace {
  try {
    return outputPlace(path);
  } catch (error) {
    throw usageError(`--output: ${messageOf(error)}`);
  }
}

/**
 * Returns the jobs, each with its result's target.
 * @throws MgwError('usage') if a name cannot be built, leads outside its folder, or is the same for two jobs.
 */
export function withTargets<Item extends FetchItem>(
  place: FetchPlace,
  fetched: readonly Item[],
): (Item & { target: Target })[] {
  const owners = new Map<string, string>();
  return fetched.map((each) => {
    const target = targetIn(place, each);
    if (target.kind === 'stdout') return { ...each, target };
    for (const path of pathsAt(target.path, each.count)) {
      const otherId = owners.get(sameFileName(path));
      if (otherId !== undefined)
        throw usageError(
          `${each.job.id} and ${otherId} would both be saved as ${path}: use different names, such as -o 'out/{id}.{ext}'.`,
        );
      owners.set(sameFileName(path), each.job.id);
    }
    return { ...each, target };
  });
}

/** Returns the number of a job's files according to its record; 1 for speech, which has no protocol. */
export function fileCount(job: Job): number {
  return Math.max(requestedVideos(job), job.record.results ?? 0);
}

/** Says how many videos the gateway returned if it returned fewer than were requested; otherwise undefined. */
export function missingText(job: Job): string | undefined {
  const requested = requestedVideos(job);
  const missing = missingVideos(job);
  return missing === 0 ? undefined : countsText(requested, requested - missing);
}

/** Compares the number of requested videos with that of the videos that the gateway returned. */
export function countsText(requested: number, returned: number): string {
  return `${requested} videos were requested; the gateway returned ${returned}.`;
}

/** Creates the folders for `count` files whose names mgw chose. @throws MgwError('local_io') if that fails. */
export async function makeFoldersOf(place: FetchPlace, target: Target, count: number): Promise<void> {
  if (place.kind !== 'names' || target.kind === 'stdout' || isObjectUrl(target.path)) return;
  for (const folder of new Set(pathsAt(target.path, count).map(dirname)))
    await makeFolder(folder, 0o777).catch((error: unknown) => {
      throw localError(error, folder, 'no');
    });
}

function targetIn(place: FetchPlace, { job, index, count }: FetchItem): Target {
  if (place.kind === 'stdout' || place.kind === 'file') return place;
  if (place.kind === 'default')
    return { kind: 'file', path: goalOutput(job) ?? `${job.id}.${extensionOf(job)}` };
  // Users know a job by its key, if it has one.
  const defaultTemplate = place.isFolder ? (job.key === undefined ? '{id}.{ext}' : '{key}.{ext}') : undefined;
  try {
    const path = outputPath(place.place, valuesOf(job, index), defaultTemplate);
    return { kind: 'file', path: count === 1 ? path.replaceAll('{n}', '1') : path };
  } catch (error) {
    throw usageError(`--output for ${job.id}: ${messageOf(error)}`);
  }
}

function valuesOf(job: Job, index: number): Parameters<typeof outputPath>[1] {
  const { id, key, model, protocol } = job;
  const seed = requestedValue(job, 'seed');
  const prompt = promptOf(job);
  return {
    id,
    key,
    job: id,
    ext: extensionOf(job),
    index: String(index),
    name: key?.includes('/') ? key.split('/')[0] : undefined,
    model,
    protocol,
    seed: seed === undefined ? undefined : JSON.stringify(seed),
    slug: prompt === undefined ? undefined : slugOf(prompt),
    n: undefined,
  };
}

const spokenExtensions: Record<string, string> = { ogg_opus: 'ogg' };

function extensionOf({ protocol, request, files }: Job): string {
  if (protocol !== 'tts') return 'mp4';
  const saved = extname(files[0]?.path ?? '').slice(1);
  if (saved !== '' && saved !== 'part') return saved;
  const format = at(request as Json | undefined, 'req_params.audio_params.format');
  return typeof format === 'string' ? (spokenExtensions[format] ?? format) : 'mp3';
}
