import { lstatSync, readdirSync, type Stats } from 'node:fs';
import { sep } from 'node:path';
import { systemCode } from '../errors.ts';
import type { Job, RecordedEvent } from '../job.ts';
import { foldJob } from './fold.ts';
import { appendFile, createExclusively, readBytes, readTail, replaceFile } from './durable-file.ts';
import { damagedJob, decodeEvents, tornEnd } from './event-log.ts';
import type { IndexEntry } from './index-lines.ts';
import { jobIdPattern } from './names.ts';
import { lifeOf } from './owner.ts';

/** The cache limits: the number of records, and the size of each record in bytes. */
const maxCachedRecords = 256;
const maxCachedBytes = 64 * 1024;

/** A cached record, undamaged at its beginning and end, with the version of the file that it was read from. */
interface CachedRecord {
  version: string;
  lines: readonly (RecordedEvent | undefined)[];
}

/** The content of a removed record. It prevents the creation of another job with the same id. */
const tombstone = 'removed\n';

/**
 * Job records: a folder of event logs, each in a file `<id>.jsonl`. A record is created once, and a tombstone replaces
 * it when it is removed. A reader finds no record, a complete record or a tombstone, never a state in between. Recently
 * used records are cached in memory.
 */
export class JobRecords {
  readonly folder: string;
  /** Cached records by id, least recently used first. */
  readonly #cachedRecords = new Map<string, CachedRecord>();

  constructor(folder: string) {
    this.folder = folder;
  }

  /** Returns the path of a job's record. */
  pathOf(id: string): string {
    return `${this.folder}${sep}${id}.jsonl`;
  }

  /**
   * Creates a record atomically. The record is durable when the call returns. Returns false if a record with this id
   * exists or was removed. With `restores`, the new record replaces a tombstone.
   */
  async create(id: string, text: string, restores?: boolean): Promise<boolean> {
    const path = this.pathOf(id);
    if (!(await createExclusively(path, text))) {
      if (restores !== true || !this.isRemoved(id)) return false;
      await replaceFile(path, text);
    }
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat?.size === Buffer.byteLength(text)) this.#cache(id, stat, decodeEvents(text));
    return true;
  }

  /**
   * Appends a line to a record. The line is durable when the call returns, unless `isDurable` is false.
   * @throws ENOENT if the record is missing or was removed.
   */
  async append(id: string, line: string, isDurable: boolean): Promise<void> {
    const cached = this.#cachedRecords.get(id);
    const isCached = (stat: Stats): boolean => {
      if (stat.size === tombstone.length && this.isRemoved(id)) throw missingError(id);
      return cached?.version === versionOf(stat);
    };
    const { before, after } = await appendFile(this.pathOf(id), line, {
      tornEnd,
      isDurable,
      isComplete: isCached,
    });
    if (cached !== undefined && isCached(before) && after.size === before.size + Buffer.byteLength(line))
      this.#cache(id, after, [...cached.lines, ...decodeEvents(line)]);
  }

  /** Computes a job from its recorded events; undefined if there is no record. */
  read(id: string): Job | undefined {
    if (!jobIdPattern.test(id)) return undefined;
    const record = this.#find(id);
    if (record === undefined) return undefined;
    return jobOf(id, record);
  }

  /** Returns a record's events, with `undefined` for each line that cannot be read. */
  events(id: string): (RecordedEvent | undefined)[] {
    return [...(this.#find(id)?.lines ?? decodeEvents(''))];
  }

  /** Returns a string that changes whenever the record changes; undefined if there is no record. */
  version(id: string): string | undefined {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat === undefined || this.#isTombstone(id, stat) ? undefined : versionOf(stat);
  }

  /** Whether a record was removed or its creation was forbidden. */
  isRemoved(id: string): boolean {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat !== undefined && this.#isTombstone(id, stat);
  }

  #isTombstone(id: string, stat: Stats): boolean {
    return (
      stat.size === tombstone.length && stat.isFile() && readBytes(this.pathOf(id))?.toString() === tombstone
    );
  }

  /** Returns the ids of all records, including removed ones, newest first. */
  ids(): string[] {
    const ids = readdirSync(this.folder).map((name) => name.slice(0, -'.jsonl'.length));
    return ids
      .filter((id) => jobIdPattern.test(id))
      .sort()
      .reverse();
  }

  /** Removes a record. The removal is durable when the call returns. */
  async remove(id: string): Promise<void> {
    await replaceFile(this.pathOf(id), tombstone);
  }

  /** Prevents a record from being created. Returns false if the record exists. */
  async forbid(id: string): Promise<boolean> {
    return (await createExclusively(this.pathOf(id), tombstone)) || this.isRemoved(id);
  }

  #find(id: string): { text?: string; lines: CachedRecord['lines'] } | undefined {
    try {
      const cached = this.#cachedRecords.get(id);
      if (cached !== undefined && cached.version === this.version(id)) return cached;
      const file = readTail(this.pathOf(id), () => 0);
      if (file === undefined) return undefined;
      const text = file.tail.toString('utf8');
      if (text === tombstone) return undefined;
      const lines = decodeEvents(text);
      if (text.endsWith('\n')) this.#cache(id, file.stat, lines);
      return { text, lines };
    } catch (error) {
      if (shortageCodes.has(systemCode(error) ?? '')) throw error;
      // An unreadable record (a link, a folder or a file without permission) must not be treated as "not sent".
      return { text: '', lines: decodeEvents('') };
    }
  }

  #cache(id: string, stat: Stats, lines: CachedRecord['lines']): void {
    this.#cachedRecords.delete(id);
    if (stat.size > maxCachedBytes || lines[0]?.type !== 'prepared') return;
    this.#cachedRecords.set(id, { version: versionOf(stat), lines });
    if (this.#cachedRecords.size > maxCachedRecords)
      this.#cachedRecords.delete(this.#cachedRecords.keys().next().value ?? '');
  }
}

/** Computes a job from its record's text. */
export function foldRecord(id: string, text: string): Job {
  return jobOf(id, { text, lines: decodeEvents(text) });
}

function jobOf(id: string, { text = '', lines }: { text?: string; lines: CachedRecord['lines'] }): Job {
  return foldJob(id, lines, lifeOf) ?? damagedJob(id, text, lines, lifeOf);
}

function missingError(id: string): Error {
  return Object.assign(new Error(`Job ${id} no longer exists`), { code: 'ENOENT' });
}

// Errors that are unrelated to the file: this process has too many open files or too little memory.
const shortageCodes = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

// Combines file attributes that change with every write: a record is only appended to or replaced.
function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
}

/** Returns all index entries for a job. A job without a record was removed. */
export function entriesOf(id: string, job: Job | undefined): IndexEntry[] {
  if (job === undefined) return [{ kind: 'removed', value: '', id }];
  const { handle, state, record } = job;
  return [
    { kind: 'fingerprint', value: record.fingerprint, id },
    ...(handle === undefined ? [] : [{ kind: 'handle', value: handle, id } as const]),
    ...(state === 'succeeded' ? [{ kind: 'succeeded', value: '', id } as const] : []),
  ];
}

/**
 * Adds a record's index entries, then writes the record, so that a complete index never misses a job. Adds the entries
 * again if the index was replaced in the meantime: the new file may have been completed before the record existed.
 * @param add adds the entries: {@link JobIndex.add}
 */
export async function writeIndexed<T>(
  add: () => Promise<() => boolean>,
  write: () => Promise<T>,
): Promise<T> {
  const isStillIndexed = await add();
  const result = await write();
  if (!isStillIndexed()) await add();
  return result;
}
