import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import { MgwError, usageError } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { namedJob, newestVideo, recordedJob } from '../jobs/ref.ts';
import { filesOfSample, goalOutput, numberedPath, pathsAt } from '../jobs/output.ts';
import { counted, printableLine } from '../printable.ts';
import { deliverFound } from './fetch.ts';
import { type FramePlace, takeFrame } from './ffmpeg.ts';
import { findJobHere, protocolOf } from './find-job.ts';
import { assetKind } from '../protocols/flag.ts';
import { isObjectUrl } from '../store-url.ts';
import { copiesIn } from './local-copies.ts';
import { type Session, transferDeadline } from './session.ts';

/** An asset from an earlier job: its video or a frame of the video. */
export interface EarlierAsset {
  /**
   * `sha256:HEX.mp4`, with the hash of the job's first recorded file of this video. A later download or `--mark` may
   * add a file with different content. The name does not change in that case, because it is part of the fingerprint of
   * the request that uses the asset. A frame's name also ends in `#first` or `#last`, because the bytes of a frame
   * depend on ffmpeg.
   */
  name: string;
  /** Finds the video, or fetches it if it is missing. Throws if there is no intact video. */
  find: () => Promise<unknown>;
  /** Returns the bytes to send: the video, or the frame as a PNG. */
  read: () => Promise<Uint8Array>;
}

/** The part of a job that an asset uses: `@KEY`, `@KEY:last`, `@KEY#2:first`. */
export interface Part {
  key: string;
  /** The video's number within the job, starting at 1. */
  index: number;
  /** The frame of the video; absent for the whole video. */
  place?: FramePlace | undefined;
  /** The flag and its value, for messages. */
  label: string;
}

const refPattern = /^@(.+?)(?:#(\d{1,4}))?(?::(first|last))?$/;

/** Returns the key in an asset flag's reference to a job: `intro` in `@intro#2:last`. */
export function keyIn(ref: string): string {
  return refPattern.exec(ref)?.[1] ?? '';
}

/**
 * Parses an asset flag's reference to a job, such as `@intro#2:last`.
 * @throws MgwError('usage') if the flag does not accept that part of a job.
 */
export function partOf(ref: string, flag: string): Part {
  const [, key = '', sample, place] = refPattern.exec(ref) ?? [];
  const label = `--${flag} ${printableLine(ref, 100)}`;
  const kind = assetKind(flag);
  if (kind === 'audio') throw usageError(`${label}: a job cannot be used as audio.`);
  const isVideo = kind === 'video';
  if (isVideo && place !== undefined)
    throw usageError(`${label}: this flag requires a whole video. Use @${printableLine(key, 80)}.`);
  if (!isVideo && place === undefined) {
    const shownRef = printableLine(ref, 100);
    const [stem = shownRef, word] = shownRef.split(/:(?=[^:#]*$)/);
    throw usageError(
      word === undefined
        ? `${label}: this flag requires an image. Use ${stem}:last for the last frame.`
        : `${label}: this flag requires an image. Use a reference that ends in :first or :last, such as ${stem}:last.`,
    );
  }
  return {
    key,
    index: sample === undefined ? 1 : Number(sample),
    place: place as FramePlace | undefined,
    label,
  };
}

/**
 * Finds the video of an earlier job by its reference: `@KEY`, `@KEY:last`, `@KEY:first`, `@KEY#2:last` for its second
 * sample (design 17). A video whose hash is recorded is not accessed yet. A command that resumes its own job sends
 * nothing, so it must not fail if the video has changed or is gone.
 * @param canFetch whether a video whose hash is not recorded may be fetched, which costs nothing. Default: true
 * @throws MgwError('usage') if the reference is `@last`, there is no such job, the job has not finished, or the flag
 * does not accept that part of it; exit 9 if the result can no longer be fetched.
 */
export async function earlierAsset(
  session: Session,
  ref: string,
  flag: string,
  canFetch = true,
): Promise<EarlierAsset> {
  const ledger = await session.ledger();
  if (keyIn(ref) === 'last' && assetKind(flag) !== 'audio') throw await lastJobError(ledger, ref, flag);
  const part = partOf(ref, flag);
  const job =
    (await namedJob(ledger, part.key)) ??
    (await recordedJob(ledger, part.key.startsWith('job_') ? part.key : `@${part.key}`));
  await checkFiles(session, job, part);
  const recorded = firstFile(job, part);
  if (recorded !== undefined) return assetOf(session, job, part, recorded);
  const file = await videoOf(session, job, part, canFetch);
  const latest = (await ledger.read(job.id)) ?? job;
  return assetOf(session, latest, part, firstFile(latest, part) ?? file);
}

// When the command is repeated, `@last` would refer to its own job, so it would pay for another video.
async function lastJobError(ledger: Ledger, ref: string, flag: string): Promise<MgwError> {
  const newest = await newestVideo(ledger);
  const frame = assetKind(flag) === 'image' && !/:(first|last)$/.test(ref) ? ':last' : '';
  const example = newest === undefined ? '' : `, such as ${ref.replace('last', newest.id)}${frame}`;
  return usageError(
    `--${flag}: @last refers to a different job after each run, so each run would pay again. Use a key or a job id${example}.`,
    ['mgw', 'jobs', 'ls'],
  );
}

/**
 * Returns the assets in a job's record; empty if the job's video has not been saved. The first one identifies the
 * video. The others have the names that earlier versions of mgw gave it. Does not access any file.
 */
export function recordedAssets(session: Session, job: Job, part: Part): EarlierAsset[] {
  const count = fileCount(job);
  const files = filesOfSample(job, [...job.record.firstFiles, ...job.files], part.index, count);
  const byHash = new Map(files.map((file) => [file.sha256, file]));
  return [...byHash.values()].map((file) => assetOf(session, job, part, file));
}

function assetOf(session: Session, job: Job, part: Part, { sha256 }: JobFile): EarlierAsset {
  const { place } = part;
  const find = async (): Promise<JobFile> => {
    // The video may have been saved again since the job was found.
    const latest = (await (await session.ledger()).read(job.id)) ?? job;
    return videoOf(session, latest, part);
  };
  return {
    name: `sha256:${sha256}.mp4${place === undefined ? '' : `#${place}`}`,
    find,
    read: async () => {
      const file = await find();
      const copies = await copiesIn(session);
      try {
        const path = await copies.pathOf(file);
        const bytes =
          place === undefined ? await readFile(path) : await takeFrame(path, place, session.signals().soft);
        if (await isIntact({ ...file, path })) return bytes;
      } finally {
        await copies.close();
      }
      throw changedError(file);
    },
  };
}

// Returns the number of videos that a job has. Throws if the job is speech, or has no video with the given number.
function checkedCount(job: Job, { index, label }: Part): number {
  if (job.protocol === 'tts') throw usageError(`${label}: ${job.id} is speech, not a video.`);
  const count = fileCount(job);
  if (index >= 1 && index <= count) return count;
  throw usageError(`${label}: ${job.id} has only ${counted(count, 'video')}.`);
}

// Checks that the job's files, and the output to which its video may be saved again, may be used.
async function checkFiles({ checkFile }: Session, job: Job, { label }: Part): Promise<void> {
  if (checkFile === undefined) return;
  const output = goalOutput(job);
  const outputs = output === undefined ? [] : pathsAt(output, fileCount(job));
  for (const path of [...job.files.map((file) => file.path), ...outputs])
    if (!isObjectUrl(path)) await checkFile(path, label);
}

async function videoOf(session: Session, job: Job, part: Part, canFetch = true): Promise<JobFile> {
  const { index, label } = part;
  await checkFiles(session, job, part);
  const count = checkedCount(job, part);
  const saved = await savedFile(session, job, index, count);
  if (saved !== undefined) return saved;
  if (job.state === 'failed' || job.state === 'rejected')
    throw usageError(
      `${label}: ${job.id} ${job.state === 'failed' ? 'has failed' : 'was rejected'}, so there is no video.`,
      ['mgw', 'jobs', 'show', job.id],
    );
  const path = goalOutput(job) ?? fetchedOutput(job, index, count);
  if (job.state !== 'succeeded' || path === undefined)
    throw usageError(
      `${label}: ${job.id} ${job.state === 'succeeded' ? 'has not been saved' : 'has not finished'}.`,
      ['mgw', 'jobs', 'fetch', job.id, ...(path === undefined ? ['-o', `${job.id}.mp4`] : [])],
    );
  const filePath = numberedPath(path, index - 1, count);
  if (existsSync(filePath))
    throw new MgwError(
      'local_io',
      `${label}: ${printableLine(filePath, 200)} has changed since it was saved.`,
      { charged: 'no', isOfInput: true, next: ['mgw', 'jobs', 'fetch', job.id, '-o', `${job.id}.mp4`] },
    );
  if (!canFetch)
    throw usageError(`${label}: ${job.id} has not been saved.`, ['mgw', 'jobs', 'fetch', job.id]);
  session.note(`${label}: the file is missing. Fetching it again.`);
  const deps = await session.jobDeps();
  const { protocol = protocolOf(job) } = await findJobHere(job.id, deps, ['jobs', 'fetch']);
  const options = {
    ask: 'file',
    target: { kind: 'file', path },
    force: false,
    deadline: await transferDeadline(session),
  } as const;
  const delivery = await deliverFound(job, protocol, 'fetch', options, deps).catch((error: unknown) => {
    // The submission that needs the video has not been sent.
    const retry = error instanceof MgwError && error.retry === 'never' ? 'never' : 'safe';
    throw error instanceof MgwError ? error.with({ charged: 'no', retry }) : error;
  });
  await delivery.delivered();
  const newFile = delivery.files[index - 1];
  if (newFile === undefined)
    throw usageError(`${label}: ${job.id} has only ${counted(delivery.files.length, 'video')}.`);
  return newFile;
}

// Returns the output of the command that fetched a job's video. The output is not recorded, so derives it from the path
// of the file. Undefined if the files were numbered differently.
function fetchedOutput(job: Job, index: number, count: number): string | undefined {
  const path = filesOfSample(job, job.files, index, count).at(-1)?.path;
  if (path === undefined || count === 1) return path;
  const extension = extname(path);
  const output = `${path.slice(0, -`-${index}${extension}`.length)}${extension}`;
  return numberedPath(output, index - 1, count) === path ? output : undefined;
}

/**
 * Returns an intact file of a job's n-th result, counted from 1, on this machine or in the store; undefined if there is
 * none. Prefers files with the content of the first recorded file, then newer files.
 * @throws MgwError('store') if the store does not respond.
 */
export async function savedFile(
  session: Session,
  job: Job,
  index: number,
  count: number,
): Promise<JobFile | undefined> {
  const [first] = filesOfSample(job, job.record.firstFiles, index, count);
  const newestFirst = filesOfSample(job, job.files, index, count).reverse();
  const isFirst = ({ sha256 }: JobFile): boolean => sha256 === first?.sha256;
  const files = [...newestFirst.filter(isFirst), ...newestFirst.filter((file) => !isFirst(file))];
  for (const file of files) if (await isIntact(file)) return file;
  for (const file of files)
    if (isObjectUrl(file.path) && (await (await session.objects()).has(file.path, file))) return file;
  return undefined;
}

function firstFile(job: Job, part: Part): JobFile | undefined {
  return filesOfSample(job, job.record.firstFiles, part.index, checkedCount(job, part))[0];
}

function changedError({ path }: JobFile): MgwError {
  return usageError(`${printableLine(path, 200)} changed while the command ran.`);
}
