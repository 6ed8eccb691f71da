import { constants } from 'node:fs';
import { lstat, open, type FileHandle } from 'node:fs/promises';
import { systemCode } from '../errors.ts';
import type { Owner } from '../job.ts';
import { plainFile } from '../open-flags.ts';

const { O_RDWR, O_CREAT, O_APPEND } = constants;
const fitsHeader = /^[\x20-\x7e\x80-\xff]+$/;
const longestLog = 4 * 1024 * 1024;

/** What is kept next to an output while it is made: whose it is, of what, and how much of it can be relied on. */
export interface PartMetadata {
  /** What is being made, in words that stay when its address is signed afresh. */
  identity: string;
  /** The name of the file that it is written to; absent where there is none yet. */
  part?: string;
  /** What a continuation must match: see `strongValidator`. */
  validator?: string;
  /** The whole file's size, bytes, where it is known. */
  total?: number;
  /** So many bytes from the start are on the disk for sure; absent until the part has been made. */
  durable?: number;
  /** The whole file, from when it is about to be published. */
  sealed?: { bytes: number; sha256: string };
  /** Names of further files that were made on the way; nothing of them is continued. */
  scratch: string[];
}

/** One process's claim to an output. */
export interface Claim {
  /** Made up for this claim. */
  claim: string;
  /** The claim that stood before, '' where there was none: of two with the same one the first counts. */
  after: string;
  owner: Owner;
  identity: string;
}

/** What a log of claims comes to. */
export interface ClaimLog {
  /** The claim that counts; undefined where nobody has made one. */
  latest?: Claim;
  /** True where its process has let go. */
  released: boolean;
  metadata: PartMetadata;
}

/** What the holder of a claim adds to the log. A scratch name is added to those before it. */
export type Note = Partial<Omit<PartMetadata, 'identity' | 'scratch'>> & { scratch?: string };

/**
 * Reads a log of claims. The order of its lines decides who holds what it is about; nobody can undo another's line.
 * Lines that cannot be read are passed over.
 */
export function readClaimLog(text: string): ClaimLog {
  const log: ClaimLog = { released: false, metadata: { identity: '', scratch: [] } };
  for (const line of text.split('\n')) {
    const entry = parsed(line);
    if (isClaim(entry)) take(log, entry);
    else if (entry['released'] === true) log.released = true;
    else log.metadata = withNote(log.metadata, noteIn(entry));
  }
  return log;
}

/** What is known once a note has been added to it. */
export function withNote(metadata: PartMetadata, { scratch, ...note }: Note): PartMetadata {
  const all = scratch === undefined ? metadata.scratch : [...metadata.scratch, scratch];
  return { ...metadata, ...note, scratch: all };
}

function take(log: ClaimLog, claim: Claim): void {
  if (claim.after !== (log.latest?.claim ?? '')) return;
  log.latest = claim;
  log.released = false;
  if (claim.identity !== log.metadata.identity) log.metadata = { identity: claim.identity, scratch: [] };
}

function isClaim(entry: Record<string, unknown>): entry is Record<string, unknown> & Claim {
  const texts = [entry['claim'], entry['after'], entry['identity']];
  const owner = entry['owner'] as Partial<Owner> | null | undefined;
  return texts.every((text) => typeof text === 'string') && Number.isSafeInteger(owner?.pid);
}

function noteIn(entry: Record<string, unknown>): Note {
  const { part, validator, total, durable, sealed, scratch } = entry as Note;
  const { bytes, sha256 } = sealed ?? {};
  return {
    ...(typeof part === 'string' && { part }),
    ...('durable' in entry && isSize(durable) && { durable, validator: undefined, total: undefined }),
    ...(typeof validator === 'string' && fitsHeader.test(validator) && { validator }),
    ...(isSize(total) && { total }),
    ...(isSize(bytes) && typeof sha256 === 'string' && { sealed: { bytes, sha256 } }),
    ...(typeof scratch === 'string' && { scratch }),
  };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function parsed(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** A log next to an output. */
export interface LogFile {
  path: string;
  file: FileHandle;
}

/**
 * Opens a log, and makes it where there is none; undefined where something else has the name: another user's file, a
 * link, a folder. @throws what the file system throws.
 */
export async function openLog(path: string): Promise<LogFile | undefined> {
  const file = await open(path, O_RDWR | O_CREAT | O_APPEND | plainFile, 0o600).catch((error: unknown) => {
    if (foreign.has(systemCode(error) ?? '')) return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  const { size } = await file.stat();
  if (size < longestLog && (await isOwnFile(file))) return { path, file };
  await file.close();
  return undefined;
}

const foreign = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'EACCES', 'EPERM']);

/** True for a plain file of this user. */
export async function isOwnFile(file: FileHandle): Promise<boolean> {
  const status = await file.stat();
  return status.isFile() && (process.getuid === undefined || status.uid === process.getuid());
}

/** All that stands in a log. */
export async function textOf({ file }: LogFile): Promise<string> {
  const { size } = await file.stat();
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size), 0, size, 0);
  return buffer.toString('utf8', 0, bytesRead);
}

/** Adds a line in one write. A line that was torn before it costs itself only. */
export async function append({ file }: LogFile, entry: Claim | Note | { released: true }): Promise<void> {
  const line = Buffer.from(`\n${JSON.stringify(entry)}\n`);
  const { bytesWritten } = await file.write(line);
  if (bytesWritten < line.length) throw Object.assign(new Error('no space left'), { code: 'ENOSPC' });
}

/** True where the log still has its name: whoever held it may have removed it meanwhile, or somebody by hand. */
export async function isInPlace({ path, file }: LogFile): Promise<boolean> {
  const [named, opened] = [await lstat(path).catch(() => undefined), await file.stat()];
  return named !== undefined && named.ino === opened.ino && named.dev === opened.dev;
}
