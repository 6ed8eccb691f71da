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
import { regularFileFlags, removeFile } from './whole-file.ts';

const { O_RDWR, O_CREAT, O_APPEND } = constants;
const headerPattern = /^[\x20-\x7e\x80-\xff]+$/;
const maxLogBytes = 4 * 1024 * 1024;

/** Data about an unfinished output: its result, its temporary files, and the number of its bytes that are on disk. */
export interface PartMetadata {
  /** Identifies the result, and does not change if its URL is signed again. */
  identity: string;
  /** The name of the temporary file; absent until one is created. */
  part?: string;
  /** The validator for resuming the download. See `strongValidator`. */
  validator?: string;
  /** The size of the whole file, in bytes, if known. */
  total?: number;
  /** The number of bytes from the start that are certain to be on disk; absent until the temporary file exists. */
  durable?: number;
  /** The size and hash of the whole file, set immediately before it is published. */
  sealed?: { bytes: number; sha256: string };
  /** Names of other temporary files. These files are never resumed. */
  scratch: string[];
  /** Whether the previous process may still write to its files. */
  isTakenOver?: boolean;
}

/** A process's claim to an output. */
export interface Claim {
  /** The random id of this claim. */
  claim: string;
  /**
   * The id of the previous claim; '' if there is none. Of two claims with the same predecessor, the first one in the
   * log is valid.
   */
  after: string;
  owner: Owner;
  identity: string;
}

/** The state that a log of claims describes. */
export interface ClaimLog {
  /** The valid claim; undefined if there is none. */
  latest?: Claim;
  /** Whether the process that made the latest claim has released it. */
  released: boolean;
  metadata: PartMetadata;
}

/** An entry that a claim's holder adds to the log. The name in `scratch` is added to the earlier ones. */
export type Note = Partial<Omit<PartMetadata, 'identity' | 'scratch' | 'isTakenOver'>> & { scratch?: string };

/**
 * Parses a log of claims. The order of its lines determines which process holds the lock, and no process can undo
 * another process's line. Unreadable lines are skipped.
 */
export function readClaimLog(text: string): ClaimLog {
  const log: ClaimLog = { released: false, metadata: { identity: '', scratch: [] } };
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const entry = parseLine(line);
    if (isClaim(entry)) addClaim(log, entry);
    else if (entry['released'] === true) log.released = true;
    else log.metadata = withNote(log.metadata, noteIn(entry));
  }
  return log;
}

/**
 * Whether mgw wrote a log without a readable claim: it is empty, or full disks or a power failure truncated its claims.
 */
export function isUnclaimed(text: string): boolean {
  const claimStart = '{"claim":"';
  const lines = text.split('\n');
  return lines[0] === '' && lines.every((line) => claimStart.startsWith(line) || line.startsWith(claimStart));
}

/** Returns the metadata, updated with a note. */
export function withNote(metadata: PartMetadata, { scratch, ...note }: Note): PartMetadata {
  const allScratch = scratch === undefined ? metadata.scratch : [...metadata.scratch, scratch];
  return { ...metadata, ...note, scratch: allScratch };
}

function addClaim(log: ClaimLog, claim: Claim): void {
  if (claim.after !== (log.latest?.claim ?? '')) return;
  log.latest = claim;
  log.released = false;
  if (claim.identity !== log.metadata.identity) log.metadata = { identity: claim.identity, scratch: [] };
}

function isClaim(entry: Record<string, unknown>): entry is Record<string, unknown> & Claim {
  const strings = [entry['claim'], entry['after'], entry['identity']];
  const owner = entry['owner'] as Partial<Owner> | null | undefined;
  return strings.every((text) => typeof text === 'string') && Number.isSafeInteger(owner?.pid);
}

function noteIn(entry: Record<string, unknown>): Note {
  const { part, validator, total, durable, sealed, scratch } = entry as Note;
  const { bytes, sha256 } = sealed ?? {};
  return {
    ...(typeof part === 'string' && { part }),
    ...('durable' in entry && isSize(durable) && { durable, validator: undefined, total: undefined }),
    ...(typeof validator === 'string' && headerPattern.test(validator) && { validator }),
    ...(isSize(total) && { total }),
    ...(isSize(bytes) && typeof sha256 === 'string' && { sealed: { bytes, sha256 } }),
    ...(typeof scratch === 'string' && { scratch }),
  };
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function parseLine(line: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** An open log next to an output. */
export interface LogFile {
  path: string;
  /** The file descriptor. */
  file: number;
  /** The file's status when it was opened. */
  status: Stats;
}

/**
 * Opens a log, creating it if it is missing. Returns undefined if the path is taken by another user's file, a
 * link or a folder.
 * @throws file system errors
 */
export function openLog(path: string): LogFile | undefined {
  let file: number;
  try {
    file = openSync(path, O_RDWR | O_CREAT | O_APPEND | regularFileFlags, 0o600);
  } catch (error) {
    if (foreignCodes.has(systemCode(error) ?? '')) return undefined;
    throw error;
  }
  const status = fstatSync(file);
  if (status.size < maxLogBytes && isOwnFile(status)) return { path, file, status };
  closeSync(file);
  return undefined;
}

const foreignCodes = new Set(['ELOOP', 'EISDIR', 'ENXIO', 'EACCES', 'EPERM']);

/** Whether a status is that of a regular file owned by the current user. */
export function isOwnFile(status: Stats): boolean {
  return status.isFile() && (process.getuid === undefined || status.uid === process.getuid());
}

/** Returns a log's whole text. */
export function textOf({ file }: LogFile): string {
  // Starts with a small buffer, because Node allocates it from a pool.
  for (let capacity = 2048; ; capacity *= 4) {
    const bytes = Buffer.allocUnsafe(capacity);
    const length = readSync(file, bytes, 0, capacity, 0);
    if (length < capacity) return bytes.toString('utf8', 0, length);
  }
}

/**
 * The log of another process that this process is waiting for. The log remains open, so that its last notes can be read
 * after the other process has removed it.
 */
export class WatchedLog {
  #log: LogFile | undefined;
  #sealed: PartMetadata['sealed'];

  /** @param identity the hash of the result */
  constructor(readonly identity: string) {}

  /** Watches an open log, and closes the previous one. */
  watch(log: LogFile): void {
    this.end();
    this.#log = log;
  }

  /** Closes the log. Returns the size and hash of the file that a process published; undefined if none did. */
  end(): PartMetadata['sealed'] {
    if (this.#log !== undefined) this.#read(this.#log);
    this.#log = undefined;
    return this.#sealed;
  }

  #read(log: LogFile): void {
    try {
      const { metadata } = readClaimLog(textOf(log));
      if (metadata.identity === this.identity) this.#sealed = metadata.sealed ?? this.#sealed;
    } catch {
      // On some network file systems, a file that another machine has removed can no longer be read.
    } finally {
      closeSync(log.file);
    }
  }
}

/**
 * Appends a line in one write. The line begins with a newline, so that an incomplete line before it does not damage it.
 */
export function append({ file }: LogFile, entry: Claim | Note | { released: true }): void {
  const line = Buffer.from(`\n${JSON.stringify(entry)}\n`);
  if (writeSync(file, line) < line.length)
    throw Object.assign(new Error('no space left'), { code: 'ENOSPC' });
}

/** Whether a log's path still leads to that log. The log's holder or a user may have removed it. */
export function isInPlace({ path, status }: LogFile): boolean {
  const current = lstatSync(path, { throwIfNoEntry: false });
  return current !== undefined && current.ino === status.ino && current.dev === status.dev;
}

/** Removes the temporary files listed in a log. Ignores errors. */
export function unlinkAll(target: string, names: readonly string[]): void {
  for (const name of names) {
    const path = partPath(target, name);
    try {
      if (path !== undefined) unlinkSync(path);
    } catch {
      // The file is gone or cannot be removed.
    }
  }
}

/**
 * Returns the state of the temporary file listed in a log. `some`: it contains part of the result. `output`: it is a
 * second link to the output, after a crash between publishing the file and removing its first name.
 */
export function partState(target: string, name: string | undefined): 'gone' | 'empty' | 'output' | 'some' {
  const path = name === undefined ? undefined : partPath(target, name);
  const status = path === undefined ? undefined : lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined) return 'gone';
  if (!isOwnFile(status)) return 'some';
  if (status.size === 0) return 'empty';
  const output = status.nlink === 1 ? undefined : lstatSync(target, { throwIfNoEntry: false });
  return output?.ino === status.ino && output.dev === status.dev ? 'output' : 'some';
}

/** Returns the hash that identifies a result in a log. */
export function identityHash(identity: string): string {
  return createHash('sha256').update(identity).digest('hex');
}

/** Returns the path of an output's log. */
export function logOf(target: string): string {
  return `${target}.part.json`;
}

/**
 * Returns the two possible paths of an output's log. The second path is used if the first log is locked by a process
 * that cannot be observed.
 * @param identity the hash of the result
 */
export function logsOf(target: string, identity: string): [string, string] {
  return [logOf(target), logOf(`${target}.${identity.slice(0, 8)}`)];
}

/**
 * Returns the path of a test file that shows whether an output can be created. It is as long as the longest path
 * used for the output.
 */
export function testFileOf(target: string): string {
  return logOf(`${target}.00000000`);
}

/** Removes the test file of a killed process. */
export function removeTestFile(target: string): void {
  const path = testFileOf(target);
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status !== undefined && isOwnFile(status) && status.size <= 1) removeFile(path);
}

/**
 * Returns the path of a temporary file listed in a log, next to its output `target`. Returns undefined for any other
 * name, because a copied or damaged log must not make mgw open or remove other files.
 */
export function partPath(target: string, name: string): string | undefined {
  const isPart = name.startsWith(`${basename(target)}.`) && name.endsWith('.part') && !/[\\/]/.test(name);
  return isPart ? join(dirname(target), name) : undefined;
}
