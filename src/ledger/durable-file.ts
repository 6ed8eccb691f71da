import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { link, open, stat, unlink, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemCode } from '../errors.ts';
import { syncFolder } from '../make-folder.ts';
import { plainFile } from '../open-flags.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY } = constants;

/** Creates a file with its content, durable on return. @throws EEXIST where the name is taken. */
export async function createFile(path: string, text: string): Promise<void> {
  await writeNew(path, text);
  await syncFolder(dirname(path));
}

async function writeNew(path: string, text: string): Promise<void> {
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | plainFile, 0o600);
  try {
    await writeWhole(file, text);
  } catch (error) {
    await unlink(path).catch(() => undefined);
    throw error;
  } finally {
    await file.close();
  }
}

/**
 * Appends text in one write, durable on return but where `isDurable` is false. Where what stands before was torn, `tornEnd` closes it off first;
 * nothing is ever cut off, since another process may have written after it.
 */
export async function appendFile(
  path: string,
  text: string,
  tornEnd: string,
  isDurable = true,
): Promise<void> {
  const file = await open(path, O_RDWR | O_APPEND | plainFile);
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw Object.assign(new Error(`${path} is not a plain file`), { code: 'EINVAL' });
    await writeWhole(file, (await endsInsideLine(file, stat.size)) ? tornEnd + text : text, isDurable);
  } finally {
    await file.close();
  }
}

/** Gives a plain file another text, neither durable nor as one step; links and special files are not followed. */
export function replaceText(path: string, text: string): void {
  const file = openSync(path, O_WRONLY | O_CREAT | O_TRUNC | plainFile, 0o600);
  try {
    writeSync(file, text);
  } finally {
    closeSync(file);
  }
}

async function endsInsideLine(file: FileHandle, size: number): Promise<boolean> {
  if (size === 0) return false;
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] !== 0x0a;
}

async function writeWhole(file: FileHandle, text: string, isDurable = true): Promise<void> {
  const bytes = Buffer.from(text);
  const { bytesWritten } = await file.write(bytes);
  if (bytesWritten < bytes.length)
    throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
  if (isDurable) await file.sync();
}

// Synchronous: five calls for a small file take a fifth of the time that as many trips to the thread pool take.
/** A plain file's bytes, or undefined where there is none; links and special files are not followed. */
export function readBytes(path: string): Buffer | undefined {
  return withFile(path, (file, stat) => readFrom(file, stat, 0));
}

/** A plain file's status, and what stands in it from an offset that `from` chooses; undefined where there is none. */
export function readTail(
  path: string,
  from: (stat: Stats) => number,
): { stat: Stats; tail: Buffer } | undefined {
  return withFile(path, (file, stat) => {
    return { stat, tail: readFrom(file, stat, from(stat)) };
  });
}

// As much as the file had when it was looked at. A part may be all that one call gives.
function readFrom(file: number, stat: Stats, offset: number): Buffer {
  const bytes = Buffer.allocUnsafe(stat.isFile() ? Math.max(0, stat.size - offset) : 0);
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
    // A draft that is left over is never read.
    if (!isKept) await unlink(draft).catch(() => undefined);
  }
  await syncOrUndo(isKept ? [path, draft] : [path]);
  return true;
}

// False where the file had to be written under its name.
async function isLinked(draft: string, path: string, text: string): Promise<boolean> {
  try {
    await link(draft, path);
  } catch (error) {
    if (withoutLinks.has(systemCode(error) ?? '')) {
      await writeNew(path, text);
      return false;
    }
    // A link over a network may take effect and be said to have failed.
    if ((await stat(draft)).nlink < 2) throw error;
  }
  return true;
}

// What file systems without hard links answer (FAT, some network and container mounts).
const withoutLinks = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EACCES']);

async function syncOrUndo(names: readonly [string, ...string[]]): Promise<void> {
  try {
    await syncFolder(dirname(names[0]));
  } catch (error) {
    for (const name of names) await unlink(name);
    throw error;
  }
}
