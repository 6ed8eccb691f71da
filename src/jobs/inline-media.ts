import { closeSync, openSync, readSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { headBytes, isText, mp4In } from '../media/mp4.ts';
import { HashedFile } from '../files/hashed-file.ts';
import { localError } from '../errors.ts';
import type { OutputLock } from '../files/output-lock.ts';
import type { SealedFile } from '../files/whole-file.ts';
import type { OpenSink } from './observe.ts';

/** Media inside a poll's response, decoded into files next to the output while the response arrives. */
export interface InlineMedia {
  openSink: OpenSink;
  /** Returns a sink's file with its hash; undefined if the sink was never closed. */
  file(index: number): SealedFile | undefined;
}

/** Hooks that the sinks call. */
export interface InlineHooks {
  /** Acquires the output's lock before the first sink opens. Releasing the lock removes unpublished files. */
  lock: () => Promise<OutputLock>;
  /** Called with the number of bytes received so far. */
  onBytes: (bytes: number) => void;
}

/** Returns sinks that write next to an output. On a disk error, a sink throws MgwError('local_io'), exit 10. */
export function inlineMedia(hooks: InlineHooks): InlineMedia {
  const files = new Map<number, SealedFile>();
  return {
    openSink: async (index) => {
      const lock = await hooks.lock();
      // A later poll receives the media again, so remove the previous file.
      const formerFile = files.get(index);
      files.delete(index);
      if (formerFile !== undefined) await unlink(formerFile.path).catch(() => undefined);
      return hashingSink(lock, hooks.onBytes, (file) => files.set(index, file));
    },
    file: (index) => files.get(index),
  };
}

async function hashingSink(
  lock: OutputLock,
  onBytes: (bytes: number) => void,
  onSealed: (file: SealedFile) => void,
): ReturnType<OpenSink> {
  const { path, file } = await lock.createScratch().catch((error: unknown) => {
    throw localError(error, lock.target, 'yes');
  });
  const hashed = new HashedFile(path, file);
  return {
    path,
    // The caller reuses `bytes` once this promise has settled.
    write: async (bytes) => {
      await hashed.write([bytes]);
      await hashed.settle();
      onBytes(hashed.length);
    },
    close: async () => {
      try {
        onSealed(await hashed.seal());
      } finally {
        await hashed.close();
      }
    },
  };
}

/**
 * Returns the MIME type of a decoded file, or why it is not a video. Text is not media, and an MP4 must be complete
 * (design 6).
 */
export function kindOf(path: string): { flaw?: string; mime?: string } {
  const file = openSync(path, 'r');
  try {
    const mp4 = mp4In(file);
    if (mp4 !== undefined)
      return mp4.flaw === undefined ? { mime: 'video/mp4' } : { flaw: `broken: ${mp4.flaw}` };
    const head = Buffer.alloc(headBytes);
    const isPlainText = isText(head.subarray(0, readSync(file, head, 0, headBytes, 0)), undefined);
    return isPlainText ? { flaw: 'text, not a video' } : {};
  } finally {
    closeSync(file);
  }
}
