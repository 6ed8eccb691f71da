import { randomUUID } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { dirname } from 'node:path';
import { systemCode } from '../errors.ts';
import { syncFile, syncFolder } from '../files/make-folder.ts';
import { plainFile } from '../files/whole-file.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY } = constants;

// All but the syncs is synchronous: a call takes a tenth of a trip to the thread pool, and there are dozens for each job.

/** A change of the disk that is about to be made. */
export type Step = (change: 'write' | 'append' | 'link' | 'rename', path: string) => Promise<void> | void;

let step: Step | undefined;

/** Lets a test act before each change that this module makes: other processes may do anything there. */
export function beforeEachStep(act: Step | undefined): void {
  step = act;
}

/** Creates a file with its content, durable on return unless `isDurable` is false. @throws EEXIST if the name is taken. */
export async function createFile(path: string, text: string, isDurable = true): Promise<void> {
  await writeNew(path, text, isDurable);
  if (isDurable) await syncFolder(dirname(path));
}

async function writeNew(path: string, text: string, isDurable = true): Promise<void> {
  if (step !== undefined) await step('write', path);
  const file = openSync(path, O_WRONLY | O_CREAT | O_EXCL | plainFile, 0o600);
  try {
    writeWhole(file, text);
    if (isDurable) await syncFile(file);
  } catch (error) {
    tryUnlink(path);
    throw error;
  } finally {
    closeSync(file);
  }
}

/** How a file is appended to. */
export interface AppendOptions {
  /** Closes off a last line that was torn; a newline if absent. Nothing is cut off, since others may have written after it. */
  tornEnd?: string;
  isDurable?: boolean;
  /** Whether a file of this status is known to end in a whole line. */
  isWhole?: (stat: Stats) => boolean;
  /** Creates the file if it is missing. */
  creates?: boolean;
}

/**
 * Appends text in one write, durable on return unless `isDurable` is false, and returns the file's status before and
 * after the write.
 * @throws ENOENT if the file is missing, or was replaced meanwhile: then the text may be lost.
 */
export async function appendFile(
  path: string,
  text: string,
  { tornEnd = '\n', isDurable = true, isWhole, creates = false }: AppendOptions = {},
): Promise<{ before: Stats; after: Stats }> {
  if (step !== undefined) await step('append', path);
  const file = openSync(path, O_RDWR | O_APPEND | plainFile | (creates ? O_CREAT : 0), 0o600);
  try {
    const before = fstatSync(file);
    if (!before.isFile()) throw Object.assign(new Error(`${path} is not a plain file`), { code: 'EINVAL' });
    const isTorn = isWhole?.(before) !== true && endsInsideLine(file, before.size);
    writeWhole(file, isTorn ? tornEnd + text : text);
    const after = fstatSync(file);
    if (isDurable) await syncFile(file);
    if (lstatSync(path, { throwIfNoEntry: false })?.ino !== after.ino)
      throw Object.assign(new Error(`${path} was removed`), { code: 'ENOENT' });
    return { before, after };
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

/** A plain file's bytes, or undefined if there is none; links and special files are not followed. */
export function readBytes(path: string): Buffer | undefined {
  return readTail(path, () => 0)?.tail;
}

/**
 * A plain file's status and its bytes from an offset that `from` chooses, read into what `room` returns for so many
 * bytes; undefined if there is none.
 */
export function readTail(
  path: string,
  from: (stat: Stats) => number,
  room = (bytes: number): Buffer => Buffer.allocUnsafe(bytes),
): { stat: Stats; tail: Buffer } | undefined {
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
    const stat = fstatSync(file);
    const offset = from(stat);
    const bytes = room(stat.isFile() ? Math.max(0, stat.size - offset) : 0);
    let length = 0;
    for (let read = -1; read !== 0 && length < bytes.length; length += read)
      read = readSync(file, bytes, length, bytes.length - length, offset + length);
    return { stat, tail: bytes.subarray(0, length) };
  } finally {
    closeSync(file);
  }
}

/**
 * Creates a file with its content in one step. Exactly one of any number of processes gets true. No process ever sees it
 * half-written, except on a file system without hard links. On return it is durable, whichever process created it: what
 * is done because of it must not survive it. If it throws, this process has not created it.
 */
export async function createExclusively(path: string, text: string): Promise<boolean> {
  const draft = draftOf(path);
  await writeNew(draft, text);
  try {
    if (step !== undefined) await step('link', path);
    await link(draft, path, text);
  } catch (error) {
    if (systemCode(error) !== 'EEXIST') throw error;
    await syncFolder(dirname(path));
    return false;
  } finally {
    tryUnlink(draft);
  }
  try {
    await syncFolder(dirname(path));
  } catch (error) {
    unlinkSync(path);
    throw error;
  }
  return true;
}

/** Puts a file with this content in the place of the one that is there, as one step, durable on return. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const draft = draftOf(path);
  await writeNew(draft, text);
  try {
    if (step !== undefined) await step('rename', path);
    renameSync(draft, path);
  } catch (error) {
    tryUnlink(draft);
    throw error;
  }
  await syncFolder(dirname(path));
}

function draftOf(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}

async function link(draft: string, path: string, text: string): Promise<void> {
  try {
    linkSync(draft, path);
  } catch (error) {
    if (withoutLinks.has(systemCode(error) ?? '')) return writeNew(path, text);
    // A link over a network may take effect and be said to have failed.
    if (statSync(draft).nlink < 2) throw error;
  }
}

// What file systems without hard links answer (FAT, some network and container mounts).
const withoutLinks = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EACCES']);
