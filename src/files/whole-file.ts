import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, read, readSync, statSync, unlinkSync } from 'node:fs';
import { promisify } from 'node:util';
import { systemCode } from '../errors.ts';

/** A file and the size and hash of its content. */
export interface WholeFile {
  path: string;
  bytes: number;
  /** The hash of the content, in lower-case hexadecimal. */
  sha256: string;
}

/** A file that this process has written, made durable and hashed. */
export interface SealedFile extends WholeFile {
  version: FileVersion;
}

/** The maximum number of bytes to read or write synchronously, because the thread pool would take longer. */
export const maxSyncBytes = 64 * 1024;

/** Whether a file has the recorded content. `changed` means that something else is at its path. */
export type FileState = 'intact' | 'changed' | 'gone';

// Synchronous, because a batch checks all its files, which would take ten times as long in the thread pool.
/** Returns a file's state by checking only its size. A file that cannot be read is `gone`. */
export function stateBySize({ path, bytes }: Pick<WholeFile, 'path' | 'bytes'>): FileState {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return 'gone';
    return found.isFile() && found.size === bytes ? 'intact' : 'changed';
  } catch {
    return 'gone';
  }
}

/** Identifies a file, and its content at one point in time. */
export interface FileVersion {
  dev: bigint;
  ino: bigint;
  size: bigint;
  mtimeNs: bigint;
}

/** Returns the version of an open file. @throws file system errors */
export function versionOf(file: number): FileVersion {
  const { dev, ino, size, mtimeNs } = fstatSync(file, { bigint: true });
  return { dev, ino, size, mtimeNs };
}

/** Hashes the content of an open file with SHA-256. Returns the hash object; the caller calls `digest`. */
export async function hashFile(file: number): Promise<Hash> {
  const hash = createHash('sha256');
  const { size } = fstatSync(file);
  const buffer = Buffer.allocUnsafe(Math.min(size + 1, 1024 * 1024));
  for (let at = 0; ;) {
    const read =
      size <= maxSyncBytes ? readSync(file, buffer, 0, buffer.length, at) : await readAsync(file, buffer, at);
    if (read === 0) return hash;
    hash.update(buffer.subarray(0, read));
    at += read;
  }
}

async function readAsync(file: number, piece: Buffer, at: number): Promise<number> {
  return (await readPiece(file, piece, 0, piece.length, at)).bytesRead;
}

const readPiece = promisify(read);

/** Whether a file exists with the recorded content. Follows a link. */
export async function isIntact({ path, bytes, sha256 }: WholeFile): Promise<boolean> {
  return (await versionIfIntact(path, { bytes, sha256 }, constants.O_NONBLOCK ?? 0)) !== undefined;
}

/** Returns the version of a regular file with the recorded content; undefined for a link or different content. */
export async function intactVersion({ path, bytes, sha256 }: WholeFile): Promise<FileVersion | undefined> {
  return versionIfIntact(path, { bytes, sha256 }, regularFileFlags);
}

async function versionIfIntact(
  path: string,
  content: Omit<WholeFile, 'path'>,
  flags: number,
): Promise<FileVersion | undefined> {
  const file = openIfPossible(path, constants.O_RDONLY | flags);
  if (file === undefined) return undefined;
  try {
    const status = fstatSync(file);
    if (!status.isFile() || status.size !== content.bytes) return undefined;
    const version = versionOf(file);
    const isIdentical = (await hashFile(file)).digest('hex') === content.sha256;
    return isIdentical && isSameVersion(versionOf(file), version) ? version : undefined;
  } finally {
    closeSync(file);
  }
}

/** Opens a file and returns its descriptor; undefined if the file cannot be opened. */
export function openIfPossible(path: string, flags: number): number | undefined {
  try {
    return openSync(path, flags);
  } catch {
    return undefined;
  }
}

/** Whether two versions describe the same file with the same size and modification time. */
export function isSameVersion(one: FileVersion, other: FileVersion): boolean {
  return isSameFile(one, other) && one.size === other.size && one.mtimeNs === other.mtimeNs;
}

/** Whether two versions describe the same file, even if it has changed. */
export function isSameFile(
  one: Pick<FileVersion, 'dev' | 'ino'>,
  other: Pick<FileVersion, 'dev' | 'ino'>,
): boolean {
  return one.ino === other.ino && one.dev === other.dev;
}

/** Removes a file if it exists. (`rmSync` would make two system calls.) */
export function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
  }
}

/** Flags for opening a regular file: links are not followed, and a FIFO does not block. Windows has neither flag. */
export const regularFileFlags = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
