import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readSync,
  statSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { dirname } from 'node:path';
import { systemCode } from '../errors.ts';
import { syncFile, syncFolder } from '../files/make-folder.ts';
import { plainFile } from '../files/open-flags.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY } = constants;

// All but the syncs is synchronous: a call takes a tenth of a trip to the thread pool, and there are dozens for each job.

/** Creates a file with its content, durable on return. @throws EEXIST where the name is taken. */
export async function createFile(path: string, text: string): Promise<void> {
  await writeNew(path, text);
  await syncFolder(dirname(path));
}

async function writeNew(path: string, text: string): Promise<void> {
  const file = openSync(path, O_WRONLY | O_CREAT | O_EXCL | plainFile, 0o600);
  try {
    writeWhole(file, text);
    await syncFile(file);
  } catch (error) {
    tryUnlink(path);
    throw error;
  } finally {
    closeSync(file);
  }
}

/**
 * Appends text in one write, durable on return but where `isDurable` is false, and gives the file's status before and
 * after the write. Where what stands before was torn, `tornEnd` closes it off first; nothing is ever cut off, since
 * another process may have written after it. `isWhole` tells of a file that is known to end in a whole line.
 */
export async function appendFile(
  path: string,
  text: string,
  tornEnd: string,
  { isDurable = true, isWhole }: { isDurable?: boolean; isWhole?: (stat: Stats) => boolean } = {},
): Promise<{ before: Stats; after: Stats }> {
  const file = openSync(path, O_RDWR | O_APPEND | plainFile);
  try {
    const before = fstatSync(file);
    if (!before.isFile()) throw Object.assign(new Error(`${path} is not a plain file`), { code: 'EINVAL' });
    const isTorn = isWhole?.(before) !== true && endsInsideLine(file, before.size);
    writeWhole(file, isTorn ? tornEnd + text : text);
    const after = fstatSync(file);
    if (isDurable) await syncFile(file);
    return { before, after };
  } finally {
    closeSync(file);
  }
}

/**
 * Writes text at the beginning of a plain file, neither durable nor as one step; what was longer keeps its end. Links
 * and special files are not followed.
 */
export function writeOver(path: string, text: string): void {
  const file = openSync(path, O_WRONLY | O_CREAT | plainFile, 0o600);
  try {
    writeSync(file, text, 0);
  } finally {
    closeSync(file);
  }
}

function endsInsideLine(file: number, size: number): boolean {
  if (size === 0) return false;
  const last = Buffer.alloc(1);
  readSync(file, last, 0, 1, size - 1);
  return last[0] !== 0x0a;
}

function writeWhole(file: number, text: string): void {
  const bytes = Buffer.from(text);
  if (writeSync(file, bytes) < bytes.length)
    throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
}

function tryUnlink(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It is left over, and never read.
  }
}

/** A plain file's bytes, or undefined where there is none; links and special files are not followed. */
export function readBytes(path: string): Buffer | undefined {
  return withFile(path, (file, stat) => readFrom(file, stat, 0));
}

/**
 * A plain file's status, and what stands in it from an offset that `from` chooses, read into what `room` gives for so many
 * bytes; undefined where there is none.
 */
export function readTail(
  path: string,
  from: (stat: Stats) => number,
  room?: (bytes: number) => Buffer,
): { stat: Stats; tail: Buffer } | undefined {
  return withFile(path, (file, stat) => {
    return { stat, tail: readFrom(file, stat, from(stat), room) };
  });
}

// As much as the file had when it was looked at. A part may be all that one call gives.
function readFrom(
  file: number,
  stat: Stats,
  offset: number,
  room = (bytes: number): Buffer => Buffer.allocUnsafe(bytes),
): Buffer {
  const bytes = room(stat.isFile() ? Math.max(0, stat.size - offset) : 0);
  let length = 0;
  for (let read = -1; read !== 0 && length < bytes.length; length += read)
    read = readSync(file, bytes, length, bytes.length - length, offset + length);
  return bytes.subarray(0, length);
}

function withFile<T>(path: string, use: (file: number, stat: Stats) => T): T | undefined {
  // Most of the files that a batch looks for are not there, and an error takes ten times as long to make.
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return undefined;
  let file: number;
  try {
    file = openSync(path, O_RDONLY | plainFile);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return use(file, fstatSync(file));
  } finally {
    closeSync(file);
  }
}

/**
 * Creates a file with its content as one step: of any number of processes one gets true. Nobody ever sees it
 * half-written, but on a file system without hard links. Where it throws, this process has not created it.
 * @param draft another name in the same folder, which nobody else uses; the file goes by it too where `keepsDraft`
 */
export async function createExclusively(
  path: string,
  text: string,
  draft: string,
  keepsDraft = false,
): Promise<boolean> {
  await writeNew(draft, text);
  let isKept = false;
  try {
    isKept = (await isLinked(draft, path, text)) && keepsDraft;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw error;
  } finally {
    if (!isKept) tryUnlink(draft);
  }
  await syncOrUndo(isKept ? [path, draft] : [path]);
  return true;
}

// False where the file had to be written under its name.
async function isLinked(draft: string, path: string, text: string): Promise<boolean> {
  try {
    linkSync(draft, path);
  } catch (error) {
    if (withoutLinks.has(systemCode(error) ?? '')) {
      await writeNew(path, text);
      return false;
    }
    // A link over a network may take effect and be said to have failed.
    if (statSync(draft).nlink < 2) throw error;
  }
  return true;
}

// What file systems without hard links answer (FAT, some network and container mounts).
const withoutLinks = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EACCES']);

async function syncOrUndo(names: readonly [string, ...string[]]): Promise<void> {
  try {
    await syncFolder(dirname(names[0]));
  } catch (error) {
    for (const name of names) unlinkSync(name);
    throw error;
  }
}
