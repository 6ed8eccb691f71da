import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type MgwError, systemCode, usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';

/** Which frame of a video. */
export type FramePlace = 'first' | 'last';

const run = promisify(execFile);
const maxPngBytes = 64 * 1024 * 1024;
const timeoutMs = 120_000;
const toPng = ['-an', '-frames:v', '1', '-c:v', 'png', '-f', 'image2pipe', '-'];

/** Checks that ffmpeg can be started. @throws MgwError('usage') that names its package. */
export async function checkFfmpeg(): Promise<void> {
  await run('ffmpeg', ['-version'], { timeout: timeoutMs }).catch((error: unknown) => {
    throw systemCode(error) === 'ENOENT' ? noFfmpeg() : usageError('ffmpeg -version failed.');
  });
}

/**
 * Takes a frame of a video with ffmpeg from the PATH, as a PNG.
 * @throws MgwError('usage') if there is no ffmpeg, or it finds no frame.
 */
export async function takeFrame(path: string, place: FramePlace, signal: AbortSignal): Promise<Uint8Array> {
  if (place === 'first') return frame(path, ['-i', `file:${path}`, ...toPng], signal);
  // The sound may be longer than the picture, so the last second may hold no frame.
  for (const seconds of ['-1', '-10']) {
    const png = await frame(
      path,
      ['-sseof', seconds, '-i', `file:${path}`, '-vf', 'reverse', ...toPng],
      signal,
      true,
    );
    if (png.length > 0) return png;
  }
  throw usageError(`ffmpeg found no frame in ${printableLine(path, 200)}.`);
}

async function frame(
  path: string,
  args: string[],
  signal: AbortSignal,
  mayBeEmpty = false,
): Promise<Uint8Array> {
  const options = { encoding: 'buffer', maxBuffer: maxPngBytes, timeout: timeoutMs, signal } as const;
  try {
    const { stdout } = await run('ffmpeg', ['-nostdin', '-v', 'error', ...args], options);
    if (stdout.length > 0 || mayBeEmpty) return stdout;
  } catch (error) {
    signal.throwIfAborted();
    if (systemCode(error) === 'ENOENT') throw noFfmpeg();
    const { stderr = '' } = error as { stderr?: Buffer | string };
    const why = printableLine(String(stderr).trim() || 'it failed', 300);
    throw usageError(`ffmpeg cannot read ${printableLine(path, 200)}: ${why}.`);
  }
  throw usageError(`ffmpeg found no frame in ${printableLine(path, 200)}.`);
}

function noFfmpeg(): MgwError {
  return usageError(
    'A frame of a video is taken with ffmpeg, which is not on the PATH. Install the package ffmpeg (apt install ffmpeg, brew install ffmpeg), then run the command again.',
  );
}
