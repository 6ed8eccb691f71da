import { randomBytes, randomUUID } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, unlinkSync, lstatSync } from 'node:fs';
import { basename } from 'node:path';
import type { Clock, Deadline } from '../clock.ts';
import { systemCode, type Charged, localError } from '../errors.ts';
import type { Life, Owner } from '../job.ts';
import { syncFile } from './make-folder.ts';
import { regularFileFlags, removeFile, openIfPossible } from './whole-file.ts';
import {
  append,
  identityHash,
  isInPlace,
  isOwnFile,
  isUnclaimed,
  logsOf,
  openLog,
  partPath,
  partState,
  readClaimLog,
  removeTestFile,
  textOf,
  unlinkAll,
  withNote,
  type ClaimLog,
  type LogFile,
  type Note,
  type PartMetadata,
  WatchedLog,
} from './claim-log.ts';

const { O_RDWR, O_CREAT, O_EXCL } = constants;

/** The process that acquires a lock, and how it checks whether other processes are alive. */
export interface Claimant {
  owner: Owner;
  /** Throws if other processes may have declared this process dead and taken over its locks. */
  assertLease: () => void;
  lifeOf: (owner: Owner) => Promise<Life>;
}

/** Options of {@link acquireOutputLock}. */
export interface LockOptions {
  claimant: Claimant;
  clock: Clock;
  /** The time limit for waiting for a live process. */
  deadline: Deadline;
  signal?: AbortSignal;
  /** Creates the error to throw at the deadline. */
  lateError: () => Error;
  /** Whether money was spent, for disk errors. */
  charged: Charged;
}

/** A file for an unfinished output, open for reading and writing. */
export interface OpenedPart {
  path: string;
  /** The file descriptor. The caller closes it. */
  file: number;
  /** Whether the file is empty. */
  isNew: boolean;
}

/**
 * Waits for the exclusive right to create the output `target`. The lock is a log next to the output, `NAME.part.json`,
 * to which each process appends its claim. A new claim overrides a dead process's claim. Without a shared ledger, a
 * process on another machine cannot be shown to be dead, so it keeps its lock; with one, it loses the lock when its
 * lease ends. Until then a second process uses a different name instead of waiting, so that two processes never write to
 * the same file.
 * @param identity the result to be created; an earlier process's leftover is resumed if it has the same identity
 * @throws the error of `lateError`; the signal's reason; MgwError('local_io').
 */
export async function acquireOutputLock(
  target: string,
  identity: string,
  options: LockOptions,
): Promise<OutputLock> {
  const { deadline, clock, signal, lateError, charged } = options;
  const watchedLog = new WatchedLog(identityHash(identity));
  try {
    for (;;) {
      const lock = await tryLogs(target, watchedLog, options.claimant).catch((error: unknown) => {
        throw localError(error, target, charged);
      });
      if (lock !== 'busy') return lock ?? new OutputLock(target, options.claimant);
      if (deadline.remainingMs() <= 0) throw lateError();
      await clock.sleep(100, signal);
    }
  } finally {
    watchedLog.end();
  }
}

async function tryLogs(
  target: string,
  watchedLog: WatchedLog,
  claimant: Claimant,
): Promise<OutputLock | 'busy' | undefined> {
  for (const path of logsOf(target, watchedLog.identity)) {
    const file = openLog(path);
    if (file === undefined) continue;
    const log = await claimLog(file, target, watchedLog.identity, claimant).catch((error: unknown) => {
      closeSync(file.file);
      throw error;
    });
    // The process that held the lock may have published this result and removed its log.
    if (typeof log === 'object')
      return new OutputLock(target, claimant, file, { sealed: watchedLog.end(), ...log.metadata });
    if (log === 'busy') watchedLog.watch(file);
    else closeSync(file.file);
    if (log === 'busy') return log;
  }
  return undefined;
}

async function claimLog(
  file: LogFile,
  target: string,
  identity: string,
  { owner, lifeOf }: Claimant,
): Promise<ClaimLog | 'busy' | 'foreign'> {
  const text = textOf(file);
  const { latest, released, metadata: leftover } = readClaimLog(text);
  if (latest === undefined && !isUnclaimed(text)) return 'foreign';
  const life = latest === undefined || released ? 'dead' : await lifeOf(latest.owner);
  if (life !== 'dead') return life === 'alive' ? 'busy' : 'foreign';
  const claim = randomUUID();
  append(file, { claim, after: latest?.claim ?? '', owner, identity });
  const log = readClaimLog(textOf(file));
  // Another claim came first, or the holder has removed the log.
  if (log.latest?.claim !== claim || !isInPlace(file)) return 'busy';
  // A process that lost its lease may resume with the file still open.
  const isTakenOver = latest?.owner.lease !== undefined && !released;
  const isUseless = isTakenOver
    ? leftover.durable !== undefined
    : isRemovable(target, leftover, leftover.identity !== identity);
  unlinkAll(target, [isUseless ? (leftover.part ?? []) : [], leftover.scratch].flat());
  return isTakenOver ? { ...log, metadata: { ...noMetadata, identity, isTakenOver } } : log;
}

// Whether to discard a leftover. A leftover of a different result is discarded, unless it is unverified: it may hold
// audio that was paid for.
function isRemovable(target: string, { part, durable }: PartMetadata, isOfAnother: boolean): boolean {
  const state = partState(target, part);
  return state === 'output' || (isOfAnother && (durable !== undefined || state === 'empty'));
}

const noMetadata: PartMetadata = { identity: '', scratch: [] };

/** The exclusive right to create one output, until it is released. */
export class OutputLock {
  readonly assertLease: () => void;
  #log: LogFile | undefined;
  #metadata: PartMetadata;

  /** Without a log, the temporary file has a name that no other process knows. */
  constructor(
    readonly target: string,
    { assertLease }: Claimant,
    log?: LogFile,
    metadata: PartMetadata = { identity: '', scratch: [] },
  ) {
    this.assertLease = assertLease;
    this.#log = log;
    this.#metadata = metadata;
  }

  /** The temporary file's metadata, from this process or an earlier one. */
  get metadata(): Readonly<PartMetadata> {
    return this.#metadata;
  }

  /** Adds an entry to the metadata, for later processes. @throws file system errors */
  async note(note: Note): Promise<void> {
    this.assertLease();
    this.#metadata = withNote(this.#metadata, note);
    if (this.#log === undefined) return;
    append(this.#log, note);
    // A published file survives a power failure, so the note that identifies it must survive too.
    if (note.sealed !== undefined) await syncFile(this.#log.file);
  }

  /**
   * Opens the file for the output: an earlier process's leftover for the same result, or a new file next to the output.
   * Never opens any other file.
   * @throws file system errors
   */
  async openPart(): Promise<OpenedPart> {
    const { part, durable } = this.#metadata;
    const leftover = part === undefined ? undefined : this.#openLeftover(part, durable === undefined);
    if (leftover !== undefined) return leftover;
    // The process that used the earlier file may resume and write to it.
    if (this.#metadata.isTakenOver) return this.createScratch('part');
    const defaultPath = this.#log?.path.replace(/\.json$/, '') ?? this.#randomPath();
    return (await this.#create(defaultPath, 'part')) ?? (await this.createScratch('part'));
  }

  /** Creates another temporary file next to the output. Releasing the lock removes the file, unless it was renamed. */
  async createScratch(kind: 'part' | 'scratch' = 'scratch'): Promise<OpenedPart> {
    return (await this.#create(this.#randomPath(), kind)) ?? this.createScratch(kind);
  }

  /**
   * Releases the lock. Leaves a temporary file that can be resumed for the next process. If a file is not empty but has
   * no `durable` note, keeps the file but not its log. The caller reports such a file.
   */
  release(): void {
    const { part, scratch, durable } = this.#metadata;
    const log = this.#log;
    // The descriptor is closed below. Its number may then belong to another file.
    this.#log = undefined;
    const state = partState(this.target, part);
    unlinkAll(this.target, [state === 'empty' || state === 'output' ? (part ?? []) : [], scratch].flat());
    if (log === undefined) return;
    try {
      removeTestFile(this.target);
      if (state === 'some' && durable !== undefined) append(log, { released: true });
      else if (isInPlace(log)) removeFile(log.path);
    } finally {
      closeSync(log.file);
    }
  }

  // A process may have died between noting a name and creating the file. Without a `durable` note, only an empty file
  // is certain to be that process's file.
  #openLeftover(part: string, mustBeEmpty: boolean): OpenedPart | undefined {
    const path = partPath(this.target, part);
    if (path === undefined) return undefined;
    const file = openIfPossible(path, O_RDWR | regularFileFlags);
    if (file === undefined) return undefined;
    const status = fstatSync(file);
    const { size, nlink } = status;
    const isOwn = isOwnFile(status) && !(mustBeEmpty && size > 0);
    if (isOwn && nlink === 1) return { path, file, isNew: size === 0 };
    closeSync(file);
    // After a crash between publishing the file and removing its first name, this is a second link to the output.
    // Remove the link, and do not write to the file.
    if (isOwn) unlinkSync(path);
    return undefined;
  }

  // Returns undefined if the name is taken. Notes the name in the log before creating the file, so that the next
  // process finds the file if this one dies.
  async #create(path: string, kind: 'part' | 'scratch'): Promise<OpenedPart | undefined> {
    await this.note({ [kind]: basename(path) });
    try {
      return { path, file: openSync(path, O_RDWR | O_CREAT | O_EXCL | regularFileFlags, 0o666), isNew: true };
    } catch (error) {
      if (systemCode(error) === 'EEXIST') return undefined;
      throw error;
    }
  }

  #randomPath(): string {
    return `${this.target}.${randomBytes(4).toString('hex')}.part`;
  }
}

/**
 * Removes an output's leftovers, once the output exists or will never be created. Keeps files of live processes, files
 * of other results, and any temporary file that may contain more than the output.
 * @throws file system errors
 */
export async function removeLeftovers(target: string, identity: string, claimant: Claimant): Promise<void> {
  removeTestFile(target);
  const identityId = identityHash(identity);
  for (const path of logsOf(target, identityId)) {
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) continue;
    const log = openLog(path);
    if (log === undefined) continue;
    try {
      await removeLeftover(log, target, identityId, claimant);
    } finally {
      closeSync(log.file);
    }
  }
}

async function removeLeftover(
  log: LogFile,
  target: string,
  identity: string,
  { owner, lifeOf }: Claimant,
): Promise<void> {
  const text = textOf(log);
  const { latest, released, metadata } = readClaimLog(text);
  // If the log has no claim, its process may have died before it wrote one.
  const isOwn = latest === undefined ? isUnclaimed(text) : metadata.identity === identity;
  const life = latest === undefined || released ? 'dead' : await lifeOf(latest.owner);
  if (!isOwn || life === 'alive') return;
  // After this claim, no other process takes over the log, unless its concurrent claim came first.
  const claim = randomUUID();
  append(log, { claim, after: latest?.claim ?? '', owner, identity });
  if (readClaimLog(textOf(log)).latest?.claim !== claim || !isInPlace(log)) return;
  // A process on another machine may still be making this output, but will find that it exists.
  const { part = [], durable, scratch } = metadata;
  const state = partState(target, metadata.part);
  const isRemovable = durable !== undefined || state === 'output' || (state === 'empty' && life === 'dead');
  unlinkAll(target, [isRemovable ? part : [], scratch].flat());
  unlinkSync(log.path);
}
