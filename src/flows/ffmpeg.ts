import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import * as z from 'zod/mini';
import { type MgwError, usageError, systemCode } from '../errors.ts';
import { tryParseJson } from '../json.ts';
import { printableLine } from '../printable.ts';

const run = promisify(execFile);
const maxOutputBytes = 64 * 1024 * 1024;
const timeoutMs = 120_000;

/** Checks that ffmpeg can be started. @throws MgwError('usage') that names the package to install. */
export async function checkFfmpeg(): Promise<void> {
  await run('ffmpeg', ['-version'], { timeout: timeoutMs }).catch((error: unknown) => {
    throw systemCode(error) === 'ENOENT' ? noFfmpeg() : usageError('ffmpeg -version failed.');
  });
}

/** A frame's position in its video. */
export type FramePlace = 'first' | 'last';

const toPng = ['-an', '-frames:v', '1', '-c:v', 'png', '-f', 'image2pipe', '-'];

/**
 * Extracts a frame of a video as a PNG, using the ffmpeg on the PATH.
 * @throws MgwError('usage') if ffmpeg is missing or finds no frame.
 */
export async function takeFrame(path: string, place: FramePlace, signal: AbortSignal): Promise<Uint8Array> {
  const frame = (args: string[]): Promise<Buffer> =>
    output('ffmpeg', path, args, { signal, timeout: timeoutMs });
  // The audio may be longer than the video, so the last second may contain no frame.
  const attempts =
    place === 'first'
      ? [['-i', `file:${path}`]]
      : ['-1', '-10'].map((seconds) => ['-sseof', seconds, '-i', `file:${path}`, '-vf', 'reverse']);
  for (const args of attempts) {
    const png = await frame([...args, ...toPng]);
    if (png.length > 0) return png;
  }
  throw usageError(`ffmpeg found no frame in ${printableLine(path, 200)}.`);
}

/**
 * Encodes or copies media into a file with ffmpeg, overwriting the file.
 * @param list ffmpeg's standard input
 * @throws MgwError('usage') if ffmpeg is missing or fails.
 */
export async function encode(path: string, args: string[], signal: AbortSignal, list = ''): Promise<void> {
  const allArguments = ['-y', ...args, '-movflags', '+faststart', '-f', 'mp4', `file:${path}`];
  await output('ffmpeg', 'the film', allArguments, { signal }, list);
}

const streamSchema = z.looseObject({ codec_type: z.string() });
const probeSchema = z.object({
  streams: z.array(streamSchema),
  format: z.object({ duration: z.coerce.number().check(z.positive()) }),
});

/** The properties of a stream in a media file, as named by ffprobe. */
export type Stream = z.infer<typeof streamSchema>;

/** ffprobe's output for a media file. */
export interface Probe {
  /** The first video stream; absent if the file has no video. */
  video?: Stream | undefined;
  /** The first audio stream; absent if the file has no audio. */
  audio?: Stream | undefined;
  seconds: number;
}

/**
 * Returns the streams and the duration of a media file.
 * @throws MgwError('usage') if ffprobe is missing or cannot read the file.
 */
export async function probe(path: string, input: string[], signal: AbortSignal): Promise<Probe> {
  const args = ['-show_data_hash', 'sha256', '-show_streams', '-show_format', '-of', 'json'];
  const text = await output('ffprobe', path, [...args, ...input], { signal, timeout: timeoutMs });
  const { data } = probeSchema.safeParse(tryParseJson(text.toString()));
  if (data === undefined)
    throw usageError(`ffprobe cannot read ${printableLine(path, 200)}: it has no duration.`);
  const firstStream = (type: string): Stream | undefined =>
    data.streams.find(({ codec_type: each }) => each === type);
  return { video: firstStream('video'), audio: firstStream('audio'), seconds: data.format.duration };
}

async function output(
  program: 'ffmpeg' | 'ffprobe',
  path: string,
  args: string[],
  limits: { signal: AbortSignal; timeout?: number },
  stdin?: string,
): Promise<Buffer> {
  const quietFlags = program === 'ffmpeg' ? ['-nostdin', '-v', 'error'] : ['-v', 'error'];
  try {
    const execution = run(program, [...quietFlags, ...args], {
      ...limits,
      encoding: 'buffer',
      maxBuffer: maxOutputBytes,
    });
    // Ignore write errors: a program that has failed no longer reads its input.
    execution.child.stdin?.on('error', () => undefined).end(stdin);
    return (await execution).stdout;
  } catch (error) {
    limits.signal.throwIfAborted();
    if (systemCode(error) === 'ENOENT') throw noFfmpeg();
    const { stderr = '' } = error as { stderr?: Buffer | string };
    const reason = printableLine(String(stderr).trim() || 'it failed', 300);
    throw usageError(`${program} failed on ${printableLine(path, 200)}: ${reason}.`);
  }
}

function noFfmpeg(): MgwError {
  return usageError(
    'mgw needs ffmpeg to extract frames and to join videos, but ffmpeg is not on the PATH. Install the package ffmpeg (apt install ffmpeg, brew install ffmpeg), then run the command again.',
  );
}
