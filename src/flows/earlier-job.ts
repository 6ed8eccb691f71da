import { readFile } from 'node:fs/promises';
import { extname } from 'node:path';
import { usageError } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { recordedJob } from '../jobs/ref.ts';
import { askedOutput, numbered } from '../jobs/target.ts';
import { printableLine } from '../printable.ts';
import { deliverFound } from './fetch.ts';
import { findJobHere, protocolOf } from './find-job.ts';
import { takeFrame, type FramePlace } from './frame.ts';
import type { Session } from './session.ts';

/** An asset that is the video of an earlier job, or one of its frames. */
export interface EarlierAsset {
  /** `sha256:HEX.mp4` of the whole video. A frame has `#first` or `#last` after it: its own bytes depend on ffmpeg. */
  name: string;
  /** Returns the bytes that are sent: of the video, or of a PNG of the frame. */
  read: () => Promise<Uint8Array>;
}

/**
 * Finds the video of an earlier job: `@KEY`, `@KEY:last`, `@KEY:first`, `@KEY#2:last` for its second sample (design 17). A
 * file that is gone is fetched again, which costs nothing.
 * @throws MgwError('usage') if there is no such job, it is not finished, or the flag takes no such part of it; exit 9 if
 * the result cannot be fetched any more.
 */
export async function earlierAsset(session: Session, ref: string, flag: string): Promise<EarlierAsset> {
  const [, key = '', sample, place] = /^@(.+?)(?:#(\d{1,4}))?(?::(first|last))?$/.exec(ref) ?? [];
  const shown = printableLine(ref, 100);
  if (/audio/.test(flag)) throw usageError(`--${flag} ${shown}: a job cannot be used as audio.`);
  const isVideo = /video/.test(flag);
  if (isVideo && place !== undefined)
    throw usageError(`--${flag} ${shown}: takes a whole video. Write @${printableLine(key, 80)} instead.`);
  if (!isVideo && place === undefined)
    throw usageError(`--${flag} ${shown}: takes an image. Write ${shown}:last for the last frame.`);
  const job = await recordedJob(await session.ledger(), key.startsWith('job_') ? key : `@${key}`);
  const index = sample === undefined ? 1 : Number(sample);
  const file = await videoOf(session, job, index, `--${flag} ${shown}`);
  const name = `sha256:${file.sha256}.mp4`;
  if (place === undefined) return { name, read: async () => checked(file, await readFile(file.path)) };
  return {
    name: `${name}#${place}`,
    read: async () => checked(file, await takeFrame(file.path, place as FramePlace, session.signals().soft)),
  };
}

async function videoOf(session: Session, job: Job, index: number, shown: string): Promise<JobFile> {
  const isVideo = job.protocol !== 'tts';
  if (!isVideo) throw usageError(`${shown}: ${job.id} is speech, not a video.`);
  const count = fileCount(job, protocolOf(job));
  if (index < 1 || index > count) throw usageError(`${shown}: ${job.id} has ${count} of them.`);
  const saved = await intactFile(job, index, count);
  if (saved !== undefined) return saved;
  if (job.state === 'failed' || job.state === 'rejected')
    throw usageError(`${shown}: ${job.id} has ${job.state}, so there is no video.`, [
      'mgw',
      'jobs',
      'show',
      job.id,
    ]);
  const path = askedOutput(job);
  if (job.state !== 'succeeded' || path === undefined)
    throw usageError(
      `${shown}: ${job.id} ${job.state === 'succeeded' ? 'has not been saved' : 'has not finished'}.`,
      ['mgw', 'jobs', 'fetch', job.id, ...(path === undefined ? ['-o', `${job.id}.mp4`] : [])],
    );
  session.note(`${shown}: the file is gone. Fetching it again.`);
  const deps = await session.jobDeps();
  const { protocol = protocolOf(job) } = await findJobHere(job.id, deps, ['jobs', 'fetch']);
  const wanted = {
    ask: 'file',
    target: { kind: 'file', path },
    force: false,
    deadline: await session.deadline(),
  } as const;
  const fetched = await deliverFound(job, protocol, 'fetch', wanted, deps);
  await fetched.delivered();
  const again = fetched.files[index - 1];
  if (again === undefined) throw usageError(`${shown}: ${job.id} has ${fetched.files.length} of them.`);
  return again;
}

// The newest first: a file that was saved at several places is the same video.
async function intactFile(job: Job, index: number, count: number): Promise<JobFile | undefined> {
  const asked = askedOutput(job);
  const own = asked === undefined ? undefined : numbered(asked, index - 1, count);
  for (const file of [...job.files].reverse()) {
    const isOwn = count === 1 || file.path === own || file.path.endsWith(`-${index}${extname(file.path)}`);
    if (isOwn && (await isIntact(file))) return file;
  }
  return undefined;
}

async function checked(file: JobFile, bytes: Uint8Array): Promise<Uint8Array> {
  if (await isIntact(file)) return bytes;
  throw usageError(`${printableLine(file.path, 200)} changed while the command ran.`);
}
