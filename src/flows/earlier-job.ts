import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { MgwError, usageError } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { recordedJob } from '../jobs/ref.ts';
import { filesOfSample, goalOutput, numberedPath } from '../jobs/output.ts';
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
   * `sha256:HEX.mp4`, with the hash of the job's first recorded file of this video. The name never changes: it is part
   * of the fingerprint of the request that uses the asset, and a later download or `--mark` may add a file with
   * different content. A frame's name also ends in `#first` or `#last`, because the bytes of a frame depend on ffmpeg.
   */
  name: string;
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
  if (!isVideo && place === undefined)
    throw usageError(
      `${label}: this flag requires an image. Use ${printableLine(ref, 100)}:last for the last frame.`,
    );
  return {
    key,
    index: sample === undefined ? 1 : Number(sample),
    place: place as FramePlace | undefined,
    label,
  };
}

/**
 * The files of earlier jobs that are fetched again: all `missing` files, only those whose hash is `unrecorded`, or
 * `none`.
 */
export type FetchedFiles = 'missing' | 'unrecorded' | 'none';

/**
 * Finds the video of an earlier job by its reference: `@KEY`, `@KEY:last`, `@KEY:first`, `@KEY#2:last` for its second
 * sample (design 17). A missing file is fetched again, which costs nothing.
 * @throws MgwError('usage') if there is no such job, the job has not finished, or the flag does not accept that part of
 * it; exit 9 if the result can no longer be fetched.
 */
export async function earlierAsset(
  session: Session,
  ref: string,
  flag: string,
  fetched: FetchedFiles = 'missing',
): Promise<EarlierAsset> {
  const part = partOf(ref, flag);
  const { key, index, label } = part;
  const ledger = await session.ledger();
  const job = await recordedJob(ledger, key.startsWith('job_') ? key : `@${key}`);
  const file = await videoOf(session, job, index, label, fetched);
  const latest = (await ledger.read(job.id)) ?? job;
  return assetOf(session, latest, part, firstFile(latest, index) ?? file);
}

/**
 * Returns the assets in a job's record; empty if the job's video has not been saved. The first one identifies the
 * video. The others have the names that earlier versions of mgw gave it. Does not access any file.
 */
export function recordedAssets(session: Session, job: Job, part: Part): EarlierAsset[] {
  const count = fileCount(job, protocolOf(job));
  const files = filesOfSample(job, [...job.record.firstFiles, ...job.files], part.index, count);
  const byHash = new Map(files.map((file) => [file.sha256, file]));
  return [...byHash.values()].map((file) => assetOf(session, job, part, file));
}

function assetOf(
  session: Session,
  job: Job,
  { index, place, label }: Part,
  { sha256 }: JobFile,
): EarlierAsset {
  return {
    name: `sha256:${sha256}.mp4${place === undefined ? '' : `#${place}`}`,
    read: async () => {
      // The video may have been saved again since the job was found.
      const latest = (await (await session.ledger()).read(job.id)) ?? job;
      const file = await videoOf(session, latest, index, label);
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

async function videoOf(
  session: Session,
  job: Job,
  index: number,
  label: string,
  fetched: FetchedFiles = 'missing',
): Promise<JobFile> {
  const isVideo = job.protocol !== 'tts';
  if (!isVideo) throw usageError(`${label}: ${job.id} is speech, not a video.`);
  const count = fileCount(job, protocolOf(job));
  if (index < 1 || index > count)
    throw usageError(`${label}: ${job.id} has only ${counted(count, 'video')}.`);
  const saved = await savedFile(session, job, index, count);
  if (saved !== undefined) return saved;
  if (job.state === 'failed' || job.state === 'rejected')
    throw usageError(
      `${label}: ${job.id} ${job.state === 'failed' ? 'has failed' : 'was rejected'}, so there is no video.`,
      ['mgw', 'jobs', 'show', job.id],
    );
  const path = goalOutput(job);
  if (job.state !== 'succeeded' || path === undefined)
    throw usageError(
      `${label}: ${job.id} ${job.state === 'succeeded' ? 'has not been saved' : 'has not finished'}.`,
      ['mgw', 'jobs', 'fetch', job.id, ...(path === undefined ? ['-o', `${job.id}.mp4`] : [])],
    );
  const filePath = numberedPath(path, index - 1, count);
  if (!isObjectUrl(path) && existsSync(filePath))
    throw new MgwError(
      'local_io',
      `${label}: ${printableLine(filePath, 200)} has changed since it was saved.`,
      { charged: 'no', next: ['mgw', 'jobs', 'fetch', job.id, '-o', path, '--force'] },
    );
  const recordedFile = firstFile(job, index);
  if (recordedFile !== undefined && fetched !== 'missing') return recordedFile;
  if (fetched === 'none')
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

function firstFile(job: Job, index: number): JobFile | undefined {
  return filesOfSample(job, job.record.firstFiles, index, fileCount(job, protocolOf(job)))[0];
}

function changedError({ path }: JobFile): MgwError {
  return usageError(`${printableLine(path, 200)} changed while the command ran.`);
}
