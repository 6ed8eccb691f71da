import { createHash } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
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

/**
 * Sinks beside `target`, named after the job, so that a rerun after a crash overwrites them. `before` runs ahead
 * of the first one: two processes must not write the same names.
 */
export function inlineMedia(target: string, jobId: string, before: () => Promise<void>): InlineMedia {
  const files = new Map<number, JobFile>();
  const paths = new Set<string>();
  return {
    openSink: async (index) => {
      await before();
      const path = join(dirname(target), `.${basename(target)}.${jobId}.${index}.part`);
      paths.add(path);
      return hashingSink(path, (file) => files.set(index, file));
    },
    file: (index) => files.get(index),
    discard: async () => {
      for (const path of paths) await rm(path, { force: true });
    },
  };
}

async function hashingSink(path: string, done: (file: JobFile) => void): ReturnType<OpenSink> {
  const handle = await open(path, 'w', 0o600);
  const hash = createHash('sha256');
  let bytes = 0;
  return {
    path,
    write: async (chunk) => {
      hash.update(chunk);
      bytes += chunk.length;
      await handle.writeFile(chunk);
    },
    close: async () => {
      await handle.sync();
      await handle.close();
      done({ path, bytes, sha256: hash.digest('hex') });
    },
  };
}
