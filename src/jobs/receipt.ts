import { closeSync, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { type Charged, MgwError, localError } from '../errors.ts';
import type { Delivered, Job, JobFile, Mismatch } from '../job.ts';
import { isObject, type Json, tryParseJson } from '../json.ts';
import { measureMp4 } from '../media/measure-mp4.ts';
import { originsIn } from '../media/provenance.ts';
import { requestedValue, ratioOf, shortSides } from '../protocols/requested-value.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { showCommand } from './errors.ts';
import { missingText } from './fetch-place.ts';
import { randomBytes } from 'node:crypto';
import { open, readFile, rename, rm } from 'node:fs/promises';
import { syncFolder } from '../files/make-folder.ts';
import { withoutSignatures } from '../redact.ts';
import { pathsAt, type Target } from './output.ts';

type JobRequest = Pick<Job, 'protocol' | 'request'>;
type Receipt = Pick<JobFile, 'delivered' | 'mismatches' | 'provenance'>;

// Models round the width and the height to multiples of 8 or 16 px.
const sidePixels = 16;
const ratioTolerance = 0.02;
// A fragmented file may stretch its last frame to the end of the audio.
const fpsTolerance = 0.02;
const durationSeconds = 0.1;

/**
 * Measures a saved video, compares it with its job's request, and reads its statements of origin (design 19).
 * @returns no measurements if the file is not an MP4
 * @throws MgwError('local_io'), exit 10, if the file cannot be read.
 */
export function receiptOf(path: string, job: JobRequest, protocol: Protocol): Receipt {
  const { delivered, ...provenance } = withOpenFile(path, (file) => ({
    delivered: measureMp4(file),
    ...provenanceIn(file),
  }));
  const mismatches = delivered === undefined ? [] : mismatchesOf(job, delivered, protocol);
  return { ...(delivered && { delivered }), ...(mismatches.length > 0 && { mismatches }), ...provenance };
}

/** Returns a file's statements about its origin, as a member of its record. @throws MgwError('local_io'), exit 10. */
export function provenanceOf(path: string): Pick<JobFile, 'provenance'> {
  return withOpenFile(path, provenanceIn);
}

function provenanceIn(file: number): Pick<JobFile, 'provenance'> {
  const { kinds } = originsIn(file);
  return kinds.length > 0 ? { provenance: kinds } : {};
}

function withOpenFile<Value>(path: string, read: (file: number) => Value): Value {
  try {
    const file = openSync(path, 'r');
    try {
      return read(file);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw localError(error, path, 'yes');
  }
}

/**
 * Returns the differences between a video and its request. A property that the request does not specify is never a
 * mismatch.
 */
export function mismatchesOf(job: JobRequest, delivered: Delivered, protocol: Protocol): Mismatch[] {
  const { width, height } = delivered;
  const size = width === undefined || height === undefined ? undefined : { width, height };
  const requested = (name: string): Json | undefined => requestedValue(job, name);
  return [
    ...durationMismatch(requested('duration'), delivered),
    ...(size === undefined
      ? [noPicture(requested('resolution'))]
      : [
          ...resolutionMismatch(job, protocol, requested('resolution'), size),
          ...ratioMismatch(requested('aspect-ratio'), size),
        ]),
    ...fpsMismatch(requested('fps'), delivered),
    ...audioMismatch(requested('audio'), delivered),
  ];
}

function durationMismatch(requested: Json | undefined, { duration, fps }: Delivered): Mismatch[] {
  const seconds = positiveNumber(requested);
  if (seconds === undefined || duration === undefined) return [];
  // Both durations are rounded to the millisecond.
  const tolerance = Math.max(durationSeconds, fps === undefined ? 0 : 1 / fps) + 0.0005;
  if (Math.abs(duration - seconds) <= tolerance) return [];
  return [{ field: 'duration', asked: seconds, delivered: duration }];
}

interface Size {
  width: number;
  height: number;
}

// Every request for a video implies a picture.
function noPicture(requested: Json | undefined): Mismatch {
  const expected = typeof requested === 'string' ? requested : 'a picture';
  return { field: 'resolution', asked: expected, delivered: 'no picture' };
}

function resolutionMismatch(
  { request }: JobRequest,
  protocol: Protocol,
  requested: Json | undefined,
  { width, height }: Size,
): Mismatch[] {
  if (typeof requested !== 'string') return [];
  const expected = (isObject(request) ? protocol.convertedResolution?.(request) : undefined) ?? requested;
  const sides = shortSides(expected);
  const shortSide = Math.min(width, height);
  const isWithin =
    sides === undefined || (shortSide >= sides[0] - sidePixels && shortSide <= sides[1] + sidePixels);
  return isWithin ? [] : [{ field: 'resolution', asked: requested, delivered: `${width}x${height}` }];
}

function ratioMismatch(requested: Json | undefined, { width, height }: Size): Mismatch[] {
  const ratio = typeof requested === 'string' ? ratioOf(requested) : undefined;
  if (typeof requested !== 'string' || ratio === undefined) return [];
  if (Math.abs(width / height / ratio - 1) <= ratioTolerance) return [];
  return [{ field: 'aspect_ratio', asked: requested, delivered: `${width}x${height}` }];
}

function fpsMismatch(requested: Json | undefined, { fps }: Delivered): Mismatch[] {
  const rate = positiveNumber(requested);
  if (rate === undefined || fps === undefined || Math.abs(fps / rate - 1) <= fpsTolerance) return [];
  return [{ field: 'fps', asked: rate, delivered: fps }];
}

function audioMismatch(requested: Json | undefined, { audio }: Delivered): Mismatch[] {
  const isAudioRequested = typeof requested === 'string' ? audioValues[requested] : requested;
  if (typeof isAudioRequested !== 'boolean' || isAudioRequested === audio) return [];
  return [{ field: 'audio', asked: isAudioRequested, delivered: audio }];
}

const audioValues: Partial<Record<string, boolean>> = { Enabled: true, Disabled: false };

function positiveNumber(value: Json | undefined): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) && number > 0 ? number : undefined;
}

/** Describes each of a file's mismatches, such as `duration 2 s instead of 4 s`. */
export function mismatchTexts({ mismatches = [] }: Pick<JobFile, 'mismatches'>): string[] {
  return mismatches.map(({ field, asked, delivered }) => {
    if (field === 'audio') return delivered === true ? 'it has sound' : 'it has no sound';
    if (delivered === 'no picture') return 'it has no picture';
    const unit = field === 'duration' ? ' s' : '';
    return `${field.replace('_', ' ')} ${delivered}${unit} instead of ${asked}${unit}`;
  });
}

/** Describes what was delivered, such as `2 s, 1280x720, 24 fps, no sound`. */
export function deliveredText({ duration, width, height, fps, audio }: Delivered): string {
  const parts = [
    duration === undefined ? undefined : `${duration} s`,
    width === undefined ? undefined : `${width}x${height}`,
    fps === undefined ? undefined : `${fps} fps`,
    audio ? 'sound' : 'no sound',
  ];
  return parts.filter((fact) => fact !== undefined).join(', ');
}

/** Describes a file's mismatches in one line. */
export function mismatchText(file: Pick<JobFile, 'path' | 'mismatches'>): string {
  return `${nameOf(file)} differs from the request: ${mismatchTexts(file).join(', ')}.`;
}

function nameOf({ path }: Pick<JobFile, 'path'>): string {
  return path === '-' ? 'The video' : basename(path);
}

/** Returns the error for `--strict` (exit 9, with the files saved); undefined if no file differs or is missing. */
export function strictError(job: Job, files: readonly JobFile[]): MgwError | undefined {
  const differing = files.filter(({ mismatches }) => mismatches !== undefined);
  const missing = missingText(job);
  if (differing.length === 0 && missing === undefined) return undefined;
  const paidText = differing.some(({ path }) => path === '-')
    ? 'It was paid for.'
    : 'The file is kept; the video was paid for.';
  const text = [...differing.map(mismatchText), ...(missing === undefined ? [] : [missing]), paidText].join(
    ' ',
  );
  return new MgwError('result_corrupt', text, { charged: 'yes', next: showCommand(job) });
}

/**
 * Checks that no file differs from its request, and none is missing, as `--strict` requires.
 * @param note called for each file that cannot be measured
 * @throws what {@link strictError} returns.
 */
export function checkReceipts(job: Job, files: readonly JobFile[], note: (text: string) => void): void {
  for (const file of files.filter(({ delivered }) => delivered === undefined))
    note(`${nameOf(file)} cannot be measured, so --strict cannot check it.`);
  const error = strictError(job, files);
  if (error !== undefined) throw error;
}

/** Returns the path of a file's sidecar: `clip.mp4.json` for `clip.mp4`. */
export function sidecarPath(path: string): string {
  return `${path}.json`;
}

/**
 * Checks that the sidecars of `count` files can be written: their paths must be free or contain older sidecars.
 * @param charged whether the job was already paid for
 * @throws MgwError('output_exists'), exit 10.
 */
export async function checkSidecarsFree(
  target: Target,
  count: number,
  force: boolean,
  charged: Charged = 'no',
): Promise<void> {
  if (target.kind === 'stdout' || force) return;
  for (const path of pathsAt(target.path, count)) await checkFree(sidecarPath(path), charged);
}

async function checkFree(target: string, charged: Charged): Promise<void> {
  const text = await readFile(target, 'utf8').catch(() => undefined);
  if (text === undefined || isSidecar(tryParseJson(text))) return;
  throw new MgwError(
    'output_exists',
    `${target} already exists and was not written by mgw. --force replaces it.`,
    charged === 'no'
      ? { charged, retry: 'safe' }
      : { charged, retry: 'resume', next: ['mv', target, `${target}.old`] },
  );
}

function isSidecar(json: Json | undefined): boolean {
  return isObject(json) && typeof json['mgw'] === 'string' && typeof json['job'] === 'string';
}

/**
 * Writes a sidecar next to each of a job's files: how the file was made and where it came from (design 13). Only the
 * owner can read a sidecar, and its URLs contain no signatures.
 * @param version mgw's version
 * @param force whether to replace files that are not sidecars
 * @throws MgwError('local_io' or 'output_exists'), exit 10; the files themselves are saved.
 */
export async function writeSidecars(
  job: Job,
  files: readonly JobFile[],
  version: string,
  force: boolean,
): Promise<void> {
  for (const file of files) {
    const path = sidecarPath(file.path);
    // A resumed job was not checked before payment, and another program may have written the file since the check.
    if (!force) await checkFree(path, 'yes');
    await writeSidecar(path, contentOf(job, file, version));
  }
}

function contentOf(job: Job, file: JobFile, version: string): object {
  const { path, ...fileDetails } = file;
  const { id, key, handle, protocol, model, base_url, created_at, submitted_at, finished_at } = job;
  const request = job.request as Json | undefined;
  return {
    mgw: version,
    job: id,
    key,
    protocol,
    model,
    seed: requestedValue(job, 'seed'),
    handle,
    gateway: base_url,
    created_at,
    submitted_at,
    finished_at,
    cost: job.cost,
    usage: job.usage,
    file: { name: basename(path), ...fileDetails },
    request,
  };
}

async function writeSidecar(path: string, content: object): Promise<void> {
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${withoutSignatures(JSON.stringify(content, undefined, 2))}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
    await syncFolder(dirname(path));
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw localError(error, path, 'yes');
  }
}
