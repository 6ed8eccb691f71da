import { lstatSync, readdirSync, type Stats } from 'node:fs';
import { sep } from 'node:path';
import { systemCode } from '../errors.ts';
import type { Job, RecordedEvent } from '../job.ts';
import { damagedJob, foldJob } from './fold.ts';
import { appendFile, createExclusively, readBytes, readTail, replaceFile } from './durable-file.ts';
import { decodeEvents, tornEnd } from './event-log.ts';
import { jobIdPattern } from './names.ts';
import { lifeOf } from './owner.ts';

/** The size of the cache: the number of records, and the length of each in bytes. */
const maxCachedRecords = 256;
const maxCachedBytes = 64 * 1024;

/** A cached record, undamaged at its beginning and end, with the version of the file from which it was read. */
interface CachedRecord {
  version: string;
  lines: readonly (RecordedEvent | undefined)[];
}

/** The content of a removed record. It prevents another job with the same id. */
const tombstone = 'removed\n';

/**
 * The records of jobs: a folder of event logs, each in a file `<id>.jsonl`. A record is created once, and a tombstone
 * replaces it when it is removed. A reader finds nothing, the job or its removal, never a state in between. Recently
 * used records are cached in memory.
 */
export class JobRecords {
  readonly folder: string;
  /** By id, least recently used first. */
  readonly #cachedRecords = new Map<string, CachedRecord>();

  constructor(folder: string) {
    this.folder = folder;
  }

  /** The path of a job's record. */
  pathOf(id: string): string {
    return `${this.folder}${sep}${id}.jsonl`;
  }

  /**
   * Creates a record in one step, durable on return. Returns false if a record with this id exists or was removed; with
   * `restores`, the new record replaces a tombstone.
   */
  async create(id: string, text: string, restores = false): Promise<boolean> {
    const path = this.pathOf(id);
    if (!(await createExclusively(path, text))) {
      if (!restores || !this.isRemoved(id)) return false;
      await replaceFile(path, text);
    }
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat?.size === Buffer.byteLength(text)) this.#cache(id, stat, decodeEvents(text));
    return true;
  }

  /**
   * Adds a line to a record, durable on return unless `isDurable` is false.
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

  /** Reads a job as the fold of its events; undefined if there is no record. */
  read(id: string): Job | undefined {
    if (!jobIdPattern.test(id)) return undefined;
    const record = this.#find(id);
    if (record === undefined) return undefined;
    return jobOf(id, record);
  }

  /** The events of a record, `undefined` for a line that cannot be read. */
  events(id: string): (RecordedEvent | undefined)[] {
    return [...(this.#find(id)?.lines ?? decodeEvents(''))];
  }

  /** A string that changes whenever the record changes; undefined if there is no record. */
  version(id: string): string | undefined {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat === undefined || this.#isTombstone(id, stat) ? undefined : versionOf(stat);
  }

  /** Whether a record was removed, or its creation was forbidden. */
  isRemoved(id: string): boolean {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat !== undefined && this.#isTombstone(id, stat);
  }

  #isTombstone(id: string, stat: Stats): boolean {
    return (
      stat.size === tombstone.length && stat.isFile() && readBytes(this.pathOf(id))?.toString() === tombstone
    );
  }

  /** Ids of all records, including removed ones, newest first. */
  ids(): string[] {
    const ids = readdirSync(this.folder).map((name) => name.slice(0, -'.jsonl'.length));
    return ids
      .filter((id) => jobIdPattern.test(id))
      .sort()
      .reverse();
  }

  /** Removes a record. The removal is durable on return. */
  async remove(id: string): Promise<void> {
    await replaceFile(this.pathOf(id), tombstone);
  }

  /** Prevents a record from being created; false if it exists. */
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
      // A link, a folder, or a file without permission: an unreadable record must not count as "not sent".
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

/** Folds the text of a record. */
export function foldRecord(id: string, text: string): Job {
  return jobOf(id, { text, lines: decodeEvents(text) });
}

function jobOf(id: string, { text = '', lines }: { text?: string; lines: CachedRecord['lines'] }): Job {
  return foldJob(id, lines, lifeOf) ?? damagedJob(id, text, lines, lifeOf);
}

function missingError(id: string): Error {
  return Object.assign(new Error(`Job ${id} no longer exists`), { code: 'ENOENT' });
}

// Errors that do not concern the file: this process has too many files open, or too little memory.
const shortageCodes = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

// These values change with every write, since records are only appended to or replaced.
function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
}
