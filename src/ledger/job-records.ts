import { lstatSync, readdirSync, type Stats } from 'node:fs';
import { sep } from 'node:path';
import { systemCode } from '../errors.ts';
import type { Job, RecordedEvent } from '../job.ts';
import { damagedJob, foldJob } from './fold.ts';
import { appendFile, createExclusively, readBytes, readTail, replaceFile } from './durable-file.ts';
import { decodeEvents, tornEnd } from './event-log.ts';
import { jobIdForm } from './job-id.ts';
import { lifeOf } from './owner.ts';

/** So many records are kept, of at most so many bytes each. */
const maxKept = 256;
const longestKept = 64 * 1024;

/** A record without damage at its beginning or its end, as it was when it had a version. */
interface Kept {
  version: string;
  lines: readonly (RecordedEvent | undefined)[];
}

/** The content of a removed record, so that no job with its id is created again. */
const tombstone = 'removed\n';

/**
 * The records of jobs: a folder of event logs, each the file `<id>.jsonl`. A record is created once; it is removed by a
 * tombstone that takes its place. So a reader finds nothing, the job or its removal, and nothing in between. Records that were
 * used lately are kept in memory.
 */
export class JobRecords {
  readonly folder: string;
  /** By id, the oldest first. */
  readonly #kept = new Map<string, Kept>();

  constructor(folder: string) {
    this.folder = folder;
  }

  /** The path of a job's record. */
  pathOf(id: string): string {
    return `${this.folder}${sep}${id}.jsonl`;
  }

  /**
   * Creates a record, durable on return: complete or not there at all. False if there is one of this id, or was one:
   * unless `restores`, which puts the record in the place of a tombstone.
   */
  async create(id: string, text: string, restores = false): Promise<boolean> {
    const path = this.pathOf(id);
    if (!(await createExclusively(path, text))) {
      if (!restores || !this.isRemoved(id)) return false;
      await replaceFile(path, text);
    }
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat?.size === Buffer.byteLength(text)) this.#keep(id, stat, decodeEvents(text));
    return true;
  }

  /** Adds a line to a record, durable on return unless `isDurable` is false. @throws ENOENT if there is none, or it was removed. */
  async append(id: string, line: string, isDurable: boolean): Promise<void> {
    const kept = this.#kept.get(id);
    const isKept = (stat: Stats): boolean => {
      if (stat.size === tombstone.length && this.isRemoved(id)) throw missing(id);
      return kept?.version === versionOf(stat);
    };
    const { before, after } = await appendFile(this.pathOf(id), line, {
      tornEnd,
      isDurable,
      isWhole: isKept,
    });
    if (kept !== undefined && isKept(before) && after.size === before.size + Buffer.byteLength(line))
      this.#keep(id, after, [...kept.lines, ...decodeEvents(line)]);
  }

  /** The job as the fold of its events, undefined if there is none. */
  read(id: string): Job | undefined {
    if (!jobIdForm.test(id)) return undefined;
    const found = this.#find(id);
    if (found === undefined) return undefined;
    return jobOf(id, found);
  }

  /** The events of a record, `undefined` for a line that cannot be read. */
  events(id: string): (RecordedEvent | undefined)[] {
    return [...(this.#find(id)?.lines ?? decodeEvents(''))];
  }

  /** A text that differs after whatever becomes of a record; undefined if there is none. */
  version(id: string): string | undefined {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat === undefined || this.#isTombstone(id, stat) ? undefined : versionOf(stat);
  }

  /** Whether a record was removed, or kept from being created. */
  isRemoved(id: string): boolean {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat !== undefined && this.#isTombstone(id, stat);
  }

  #isTombstone(id: string, stat: Stats): boolean {
    return (
      stat.size === tombstone.length && stat.isFile() && readBytes(this.pathOf(id))?.toString() === tombstone
    );
  }

  /** Ids of all records and all that were removed, newest first. */
  ids(): string[] {
    const ids = readdirSync(this.folder).map((name) => name.slice(0, -'.jsonl'.length));
    return ids
      .filter((id) => jobIdForm.test(id))
      .sort()
      .reverse();
  }

  /** Removes a record, durably. */
  async remove(id: string): Promise<void> {
    await replaceFile(this.pathOf(id), tombstone);
  }

  /** Keeps a record from being created; false if there is one. */
  async forbid(id: string): Promise<boolean> {
    return (await createExclusively(this.pathOf(id), tombstone)) || this.isRemoved(id);
  }

  #find(id: string): { text?: string; lines: Kept['lines'] } | undefined {
    try {
      const kept = this.#kept.get(id);
      if (kept !== undefined && kept.version === this.version(id)) return kept;
      const read = readTail(this.pathOf(id), () => 0);
      if (read === undefined) return undefined;
      const text = read.tail.toString('utf8');
      if (text === tombstone) return undefined;
      const lines = decodeEvents(text);
      if (text.endsWith('\n')) this.#keep(id, read.stat, lines);
      return { text, lines };
    } catch (error) {
      if (shortages.has(systemCode(error) ?? '')) throw error;
      // A link, a folder, a file without permission: a record that cannot be read is not "not sent".
      return { text: '', lines: decodeEvents('') };
    }
  }

  #keep(id: string, stat: Stats, lines: Kept['lines']): void {
    this.#kept.delete(id);
    if (stat.size > longestKept || lines[0]?.type !== 'prepared') return;
    this.#kept.set(id, { version: versionOf(stat), lines });
    if (this.#kept.size > maxKept) this.#kept.delete(this.#kept.keys().next().value ?? '');
  }
}

/** The job that a record's text tells of. */
export function foldRecord(id: string, text: string): Job {
  return jobOf(id, { text, lines: decodeEvents(text) });
}

function jobOf(id: string, { text = '', lines }: { text?: string; lines: Kept['lines'] }): Job {
  return foldJob(id, lines, lifeOf) ?? damagedJob(id, text, lines, lifeOf);
}

function missing(id: string): Error {
  return Object.assign(new Error(`There is no job ${id} any more`), { code: 'ENOENT' });
}

// What says nothing about the file: this process has too much open.
const shortages = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

// Nothing writes to a record but by adding to it.
function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
}
