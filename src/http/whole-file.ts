import { createHash, type Hash } from 'node:crypto';
import { constants, fstatSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { plainFile } from '../open-flags.ts';

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

/** The SHA-256 of all that stands in an open file, still to be digested. */
export async function hashOf(file: FileHandle): Promise<Hash> {
  const hash = createHash('sha256');
  const piece = Buffer.allocUnsafe(1024 * 1024);
  for (let at = 0; ;) {
    const { bytesRead } = await file.read(piece, 0, piece.length, at);
    if (bytesRead === 0) return hash;
    hash.update(piece.subarray(0, bytesRead));
    at += bytesRead;
  }
}

/** True where a file is there with the content that was recorded; a link is followed. */
export async function isIntact({ path, bytes, sha256 }: WholeFile): Promise<boolean> {
  return (await versionHolding(path, { bytes, sha256 }, constants.O_NONBLOCK ?? 0)) !== undefined;
}

/** The version at which a plain file, and no link to one, has the content that was recorded; undefined where none has. */
export async function intactVersion({ path, bytes, sha256 }: WholeFile): Promise<FileVersion | undefined> {
  return versionHolding(path, { bytes, sha256 }, plainFile);
}

async function versionHolding(
  path: string,
  content: Omit<WholeFile, 'path'>,
  flags: number,
): Promise<FileVersion | undefined> {
  const file = await open(path, constants.O_RDONLY | flags).catch(() => undefined);
  if (file === undefined) return undefined;
  try {
    const status = await file.stat();
    if (!status.isFile() || status.size !== content.bytes) return undefined;
    const version = versionOf(file.fd);
    const isWhole = (await hashOf(file)).digest('hex') === content.sha256;
    return isWhole && isSameVersion(versionOf(file.fd), version) ? version : undefined;
  } finally {
    await file.close();
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
