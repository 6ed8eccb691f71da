import { createHash } from 'node:crypto';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { headBytes, isText } from '../http/download/media-kind.ts';
import { localError } from '../http/local-error.ts';
import { mp4Flaw, startsMp4File } from '../http/mp4.ts';
import type { JobFile } from '../job.ts';
import type { OpenSink } from './observe.ts';

/** Media of a poll answer, decoded beside its target while it arrives. */
export interface InlineMedia {
  openSink: OpenSink;
  /** The file of a sink with its hash; undefined where that sink was never closed. */
  file(index: number): JobFile | undefined;
  /** Removes what was not published. */
  discard(): Promise<void>;
}

/** What goes on around the sinks. */
export interface InlineHooks {
  /** Runs ahead of each sink: two processes must not write the same names. */
  before: () => Promise<void>;
  /** Told how much of the media that is arriving has come, bytes. */
  onBytes: (bytes: number) => void;
}

/**
 * Sinks beside `target`, named after the job and the target, so that a rerun after a crash takes their names
 * again. What the disk says about a sink is MgwError('local_io'), exit 10.
 */
export function inlineMedia(target: string, jobId: string, hooks: InlineHooks): InlineMedia {
  const files = new Map<number, JobFile>();
  const paths = new Set<string>();
  // Not the target's name itself: with all that stands around it, it may be too long for a name.
  const mark = createHash('sha256').update(basename(target)).digest('hex').slice(0, 8);
  return {
    openSink: async (index) => {
      await hooks.before();
      const path = join(dirname(target), `.${jobId}.${mark}.${index}.part`);
      paths.add(path);
      files.delete(index);
      return onDisk(path, () => hashingSink(path, hooks.onBytes, (file) => files.set(index, file)));
    },
    file: (index) => files.get(index),
    discard: async () => {
      for (const path of paths) await rm(path, { force: true });
    },
  };
}

async function hashingSink(
  path: string,
  onBytes: (bytes: number) => void,
  done: (file: JobFile) => void,
): ReturnType<OpenSink> {
  await rm(path, { force: true });
  const handle = await open(path, 'wx');
  const hash = createHash('sha256');
  let bytes = 0;
  return {
    path,
    write: (chunk) =>
      onDisk(path, async () => {
        const written = handle.writeFile(chunk);
        hash.update(chunk);
        bytes += chunk.length;
        await written;
        onBytes(bytes);
      }),
    close: async () => {
      await onDisk(path, () => synced(handle));
      done({ path, bytes, sha256: hash.digest('hex') });
    },
  };
}

async function synced(handle: FileHandle): Promise<void> {
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function onDisk<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw localError(error, path, 'yes');
  }
}

/**
 * What the bytes of a decoded file show: its MIME type, or why it is no video. Words are no media, and an MP4 must be
 * whole (design 6).
 */
export async function kindOf(path: string): Promise<{ flaw?: string; mime?: string }> {
  if (await startsMp4File(path)) {
    const flaw = await mp4Flaw(path);
    return flaw === undefined ? { mime: 'video/mp4' } : { flaw: `broken: ${flaw}` };
  }
  return isText(await headOf(path), undefined) ? { flaw: 'a text and not a video' } : {};
}

async function headOf(path: string): Promise<Buffer> {
  const file = await open(path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
