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
import { isLinkUnsupported, systemCode } from '../errors.ts';
import { syncFile, syncFolder } from '../files/make-folder.ts';
import { regularFileFlags } from '../files/whole-file.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY } = constants;

// All calls except the syncs are synchronous. A synchronous call takes a tenth of the time of a call in the thread
// pool, and each job needs dozens of calls.

/** A change to the disk that is about to be made. */
export type Step = (change: 'write' | 'append' | 'link' | 'rename', path: string) => Promise<void> | void;

let step: Step | undefined;

/** Sets a function that is called before each change to the disk. Tests use it to act like another process. */
export function beforeEachStep(act: Step | undefined): void {
  step = act;
}

/**
 * Creates a file with its content. The file is durable when the call returns, unless `isDurable` is false.
 * @throws EEXIST if the path exists.
 */
export async function createFile(path: string, text: string, isDurable = true): Promise<void> {
  await writeNew(path, text, isDurable);
  if (isDurable) await syncFolder(dirname(path));
}

async function writeNew(path: string, text: string, isDurable = true): Promise<void> {
  if (step !== undefined) await step('write', path);
  const file = openSync(path, O_WRONLY | O_CREAT | O_EXCL | regularFileFlags, 0o600);
  try {
    writeAll(file, text);
    if (isDurable) await syncFile(file);
  } catch (error) {
    tryUnlink(path);
    throw error;
  } finally {
    closeSync(file);
  }
}

/** Options for {@link appendFile}. */
export interface AppendOptions {
  /**
   * The text that terminates a torn last line. Default: a newline. A torn line is not truncated, because other
   * processes may have appended after it.
   */
  tornEnd?: string;
  isDurable?: boolean;
  /** Whether a file with this status is known to end in a complete line. */
  isComplete?: (stat: Stats) => boolean;
  /** Whether to create the file if it is missing. */
  creates?: boolean;
}

/**
 * Appends text in one write. The text is durable when the call returns, unless `isDurable` is false. Returns the file's
 * status before and after the write. If the text continues a line that another process has torn in the meantime,
 * appends it once more.
 * @throws ENOENT if the file is missing or was replaced during the write. In the latter case, the text may be lost.
 */
export async function appendFile(
  path: string,
  text: string,
  { tornEnd = '\n', isDurable = true, isComplete, creates = false }: AppendOptions = {},
): Promise<{ before: Stats; after: Stats }> {
  if (step !== undefined) await step('append', path);
  const file = openSync(path, O_RDWR | O_APPEND | regularFileFlags | (creates ? O_CREAT : 0), 0o600);
  try {
    const before = fstatSync(file);
    if (!before.isFile()) throw Object.assign(new Error(`${path} is not a regular file`), { code: 'EINVAL' });
    const isTorn = isComplete?.(before) !== true && endsInsideLine(file, before.size);
    writeAll(file, isTorn ? tornEnd + text : text);
    const after = fstatSync(file);
    if (isDurable) await syncFile(file);
    if (lstatSync(path).ino !== after.ino)
      throw Object.assign(new Error(`${path} was removed`), { code: 'ENOENT' });
    const isMerged = tornEnd !== '' && continuesLine(file, before.size, after.size, text);
    return isMerged ? await appendFile(path, text, { tornEnd, isDurable }) : { before, after };
  } finally {
    closeSync(file);
  }
}

/**
 * Repeats an action that failed because another process removed a file, at most four times. Calls `recover` before each
 * repetition.
 */
export async function repeatIfRemoved<T>(act: () => Promise<T>, recover?: () => Promise<void>): Promise<T> {
  for (let tries = 1; ; tries += 1)
    try {
      return await act();
    } catch (error) {
      if (systemCode(error) !== 'ENOENT' || tries === maxTries) throw error;
      await recover?.();
    }
}

const maxTries = 5;

// Whether the appended text continues a torn line. After this process had checked the end of the file, another process
// may have appended a line that a full disk cut short.
function continuesLine(file: number, from: number, to: number, text: string): boolean {
  const appended = Buffer.alloc(Math.max(0, to - from));
  readSync(file, appended, 0, appended.length, from);
  const start = appended.indexOf(text);
  return start > 0 && appended[start - 1] !== 0x0a;
}

function endsInsideLine(file: number, size: number): boolean {
  if (size === 0) return false;
  const lastByte = Buffer.alloc(1);
  readSync(file, lastByte, 0, 1, size - 1);
  return lastByte[0] !== 0x0a;
}

function writeAll(file: number, text: string): void {
  const bytes = Buffer.from(text);
  if (writeSync(file, bytes) < bytes.length)
    throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
}

function tryUnlink(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // A leftover is harmless, because it is never read.
  }
}

/** Reads a regular file; undefined if it is missing. Does not follow symbolic links or read special files. */
export function readBytes(path: string): Buffer | undefined {
  return readTail(path, () => 0)?.tail;
}

/**
 * Reads a regular file from the offset that `from` returns, into the buffer that `allocate` returns. Returns undefined
 * if the file is missing.
 */
export function readTail(
  path: string,
  from: (stat: Stats) => number,
  allocate = (bytes: number): Buffer => Buffer.allocUnsafe(bytes),
): { stat: Stats; tail: Buffer } | undefined {
  // A batch looks for many files that do not exist, and creating an error takes ten times as long as this check.
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return undefined;
  let file: number;
  try {
    file = openSync(path, O_RDONLY | regularFileFlags);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const stat = fstatSync(file);
    const offset = from(stat);
    const bytes = allocate(stat.isFile() ? Math.max(0, stat.size - offset) : 0);
    let length = 0;
    for (let read = -1; read !== 0; length += read)
      read = readSync(file, bytes, length, bytes.length - length, offset + length);
    return { stat, tail: bytes.subarray(0, length) };
  } finally {
    closeSync(file);
  }
}

/**
 * Creates a file with its content atomically. If several processes try, exactly one call returns true. Other processes
 * never see a partial file, except on a file system without hard links. The file is durable when the call returns,
 * regardless of which process created it, because the caller relies on it. If the call throws, this process has not
 * created the file.
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

/** Atomically replaces a file's content. The new content is durable when the call returns. */
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
    if (isLinkUnsupported(error)) return writeNew(path, text);
    // On a network file system, a link may succeed although an error is reported.
    if (statSync(draft).nlink < 2) throw error;
  }
}
