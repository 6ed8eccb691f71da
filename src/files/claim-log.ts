import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { systemCode } from '../errors.ts';
import type { Owner } from '../job.ts';
import { plainFile, removeFile } from './whole-file.ts';

const { O_RDWR, O_CREAT, O_APPEND } = constants;
const fitsHeader = /^[\x20-\x7e\x80-\xff]+$/;
const longestLog = 4 * 1024 * 1024;

/** What is kept next to an output while it is made: whose it is, of what, and how much of it can be relied on. */
export interface PartMetadata {
  /** Identifies the result; it does not change if its URL is signed again. */
  identity: string;
  /** The name of the file that it is written to; absent if there is none yet. */
  part?: string;
  /** What a continuation must match: see `strongValidator`. */
  validator?: string;
  /** The whole file's size, bytes, if it is known. */
  total?: number;
  /** So many bytes from the start are on the disk for sure; absent until the part has been made. */
  durable?: number;
  /** The whole file, from when it is about to be published. */
  sealed?: { bytes: number; sha256: string };
  /** Names of further files that were made on the way; nothing of them is continued. */
  scratch: string[];
  /** True if the previous process may still write to its files. */
  isTakenOver?: boolean;
}

/** One process's claim to an output. */
export interface Claim {
  /** Made up for this claim. */
  claim: string;
  /** The previous claim, '' if there was none. Of two claims after the same one, the first counts. */
  after: string;
  owner: Owner;
  identity: string;
}

/** What a log of claims comes to. */
export interface ClaimLog {
  /** The claim that counts; undefined if there is none. */
  latest?: Claim;
  /** True if its process has let go. */
  released: boolean;
  metadata: PartMetadata;
}

/** What the holder of a claim adds to the log. A scratch name is added to those before it. */
export type Note = Partial<Omit<PartMetadata, 'identity' | 'scratch' | 'isTakenOver'>> & { scratch?: string };

/**
 * Reads a log of claims. The order of its lines decides which process holds the lock; no process can undo another's line.
 * Lines that cannot be read are passed over.
 */
export function readClaimLog(text: string): ClaimLog {
  const log: ClaimLog = { released: false, metadata: { identity: '', scratch: [] } };
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const entry = parsed(line);
    if (isClaim(entry)) take(log, entry);
    else if (entry['released'] === true) log.released = true;
    else log.metadata = withNote(log.metadata, noteIn(entry));
  }
  return log;
}

/**
 * Whether a log in which no claim can be read is mgw's own: it is empty, or a full disk or a power cut tore its first
 * claim. Any other text belongs to another program.
 */
export function isUnclaimed(text: string): boolean {
  const start = '\n{"claim":"';
  return start.startsWith(text) || text.startsWith(start);
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

/** A log next to an output, open. */
export interface LogFile {
  path: string;
  /** Its descriptor. */
  file: number;
  /** What it was when it was opened. */
  status: Stats;
}

/**
 * Opens a log, creating it if it is missing. Undefined if something else has the name: another user's file, a
 * link, a folder. @throws what the file system throws.
 */
export function openLog(path: string): LogFile | undefined {
  let file: number;
  try {
    file = openSync(path, O_RDWR | O_CREAT | O_APPEND | plainFile, 0o600);
  } catch (error) {
    if (foreign.has(systemCode(error) ?? '')) return undefined;
    throw error;
  }
  const status = fstatSync(file);
  if (status.size < longestLog && isOwnFile(status)) return { path, file, status };
  closeSync(file);
  return undefined;
}

const foreign = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'EACCES', 'EPERM']);

/** True for a plain file of this user. */
export function isOwnFile(status: Stats): boolean {
  return status.isFile() && (process.getuid === undefined || status.uid === process.getuid());
}

/** Returns the whole text of a log. */
export function textOf({ file }: LogFile): string {
  // So little comes from memory that Node has at hand.
  for (let room = 2048; ; room *= 4) {
    const bytes = Buffer.allocUnsafe(room);
    const length = readSync(file, bytes, 0, room, 0);
    if (length < room) return bytes.toString('utf8', 0, length);
  }
}

/** Adds a line in one write. A line that was torn before it costs itself only. */
export function append({ file }: LogFile, entry: Claim | Note | { released: true }): void {
  const line = Buffer.from(`\n${JSON.stringify(entry)}\n`);
  if (writeSync(file, line) < line.length)
    throw Object.assign(new Error('no space left'), { code: 'ENOSPC' });
}

/** Whether the log still has its name: its holder, or a person, may have removed it meanwhile. */
export function isInPlace({ path, status }: LogFile): boolean {
  const named = lstatSync(path, { throwIfNoEntry: false });
  return named !== undefined && named.ino === status.ino && named.dev === status.dev;
}

/** Removes files that a log names; what cannot be removed stays. */
export function unlinkAll(target: string, names: readonly string[]): void {
  for (const name of names) {
    const path = partPath(target, name);
    try {
      if (path !== undefined) unlinkSync(path);
    } catch {
      // It is gone, or it stays.
    }
  }
}

/**
 * The state of the temporary file that a log names: missing, empty, the output itself under its first name
 * (a crash came between publishing it and removing that), or some of what is being made.
 */
export function partState(target: string, name: string | undefined): 'gone' | 'empty' | 'output' | 'some' {
  const path = name === undefined ? undefined : partPath(target, name);
  const found = path === undefined ? undefined : lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return 'gone';
  if (!isOwnFile(found)) return 'some';
  if (found.size === 0) return 'empty';
  const output = found.nlink === 1 ? undefined : lstatSync(target, { throwIfNoEntry: false });
  return output?.ino === found.ino && output.dev === found.dev ? 'output' : 'some';
}

/** Returns the hash by which a log names a result. */
export function identityHash(identity: string): string {
  return createHash('sha256').update(identity).digest('hex');
}

/** The name of an output's log. */
export function logOf(target: string): string {
  return `${target}.part.json`;
}

/**
 * The names of an output's log: the second one is for an output whose first one is held by someone who cannot be seen.
 * @param identity the hash of what is made
 */
export function logsOf(target: string, identity: string): [string, string] {
  return [logOf(target), logOf(`${target}.${identity.slice(0, 8)}`)];
}

/** The name under which it is tried whether an output can be made; as long as the longest that is used for it. */
export function trialOf(target: string): string {
  return logOf(`${target}.00000000`);
}

/** Removes what a process that was killed while it tried has left. */
export function removeTrial(target: string): void {
  const path = trialOf(target);
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found !== undefined && isOwnFile(found) && found.size <= 1) removeFile(path);
}

/**
 * The path of a file that a log names next to its output `target`; undefined for any other name: a log may have been
 * copied from elsewhere or damaged, and no other file is opened or removed on its word.
 */
export function partPath(target: string, name: string): string | undefined {
  const isPart = name.startsWith(`${basename(target)}.`) && name.endsWith('.part') && !/[\\/]/.test(name);
  return isPart ? join(dirname(target), name) : undefined;
}
