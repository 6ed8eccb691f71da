import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, read, readSync, unlinkSync } from 'node:fs';
import { promisify } from 'node:util';
import { systemCode } from '../errors.ts';

/** A file, and what it holds. */
export interface WholeFile {
  path: string;
  bytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
}

/** A file that this process has written, made durable and hashed. */
export interface SealedFile extends WholeFile {
  version: FileVersion;
}

/** So few bytes are read and written without a trip to the thread pool, which would take longer. */
export const littleBytes = 64 * 1024;

/** What tells one file, and one state of it, from another. */
export interface FileVersion {
  dev: bigint;
  ino: bigint;
  size: bigint;
  mtimeNs: bigint;
}

/** What an open file is now, by its descriptor. @throws what the file system throws. */
export function versionOf(file: number): FileVersion {
  const { dev, ino, size, mtimeNs } = fstatSync(file, { bigint: true });
  return { dev, ino, size, mtimeNs };
}

/** The SHA-256 of the whole open file, still to be digested. */
export async function hashOf(file: number): Promise<Hash> {
  const hash = createHash('sha256');
  const { size } = fstatSync(file);
  const piece = Buffer.allocUnsafe(Math.min(size + 1, 1024 * 1024));
  for (let at = 0; ;) {
    const read =
      size <= littleBytes ? readSync(file, piece, 0, piece.length, at) : await later(file, piece, at);
    if (read === 0) return hash;
    hash.update(piece.subarray(0, read));
    at += read;
  }
}

async function later(file: number, piece: Buffer, at: number): Promise<number> {
  return (await readPiece(file, piece, 0, piece.length, at)).bytesRead;
}

const readPiece = promisify(read);

/** True if a file is there with the content that was recorded; a link is followed. */
export async function isIntact({ path, bytes, sha256 }: WholeFile): Promise<boolean> {
  return (await versionHolding(path, { bytes, sha256 }, constants.O_NONBLOCK ?? 0)) !== undefined;
}

/** The version at which a plain file, and no link to one, has the content that was recorded; undefined if none has. */
export async function intactVersion({ path, bytes, sha256 }: WholeFile): Promise<FileVersion | undefined> {
  return versionHolding(path, { bytes, sha256 }, plainFile);
}

async function versionHolding(
  path: string,
  content: Omit<WholeFile, 'path'>,
  flags: number,
): Promise<FileVersion | undefined> {
  const file = opened(path, constants.O_RDONLY | flags);
  if (file === undefined) return undefined;
  try {
    const status = fstatSync(file);
    if (!status.isFile() || status.size !== content.bytes) return undefined;
    const version = versionOf(file);
    const isWhole = (await hashOf(file)).digest('hex') === content.sha256;
    return isWhole && isSameVersion(versionOf(file), version) ? version : undefined;
  } finally {
    closeSync(file);
  }
}

/** A file's descriptor, undefined if it cannot be opened. */
export function opened(path: string, flags: number): number | undefined {
  try {
    return openSync(path, flags);
  } catch {
    return undefined;
  }
}

/** True for one file in one state. */
export function isSameVersion(one: FileVersion, other: FileVersion): boolean {
  return isSameFile(one, other) && one.size === other.size && one.mtimeNs === other.mtimeNs;
}

/** True for one file, whatever has been written to it. */
export function isSameFile(
  one: Pick<FileVersion, 'dev' | 'ino'>,
  other: Pick<FileVersion, 'dev' | 'ino'>,
): boolean {
  return one.ino === other.ino && one.dev === other.dev;
}

/** Removes a file; one that is not there is gone already. (`rmSync` looks twice at what it removes.) */
export function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
  }
}

/** Flags for opening a plain file: a link is not followed, and a FIFO not waited for. Windows has neither of them. */
export const plainFile = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
