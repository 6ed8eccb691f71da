import { lstatSync, readdirSync, type Stats } from 'node:fs';
import { sep } from 'node:path';
import { systemCode } from '../errors.ts';
import type { Job, RecordedEvent } from '../job.ts';
import { removeFile } from '../files/remove-file.ts';
import { damagedJob } from './damaged-job.ts';
import { appendFile, createExclusively, readTail } from './durable-file.ts';
import { decodeEvents, tornEnd } from './event-log.ts';
import { foldJob } from './fold.ts';
import { jobIdForm } from './job-id.ts';
import { lifeOf } from './owner.ts';

/** So many records are kept, of at most so many bytes each. */
const mostKept = 256;
const longestKept = 64 * 1024;

/** A record without damage at its beginning or its end, as it was when it had a version. */
interface Kept {
  version: string;
  lines: readonly (RecordedEvent | undefined)[];
}

/** The records of jobs: a folder of event logs, each the file `<id>.jsonl`. Those that were used lately are read once. */
export class JobRecords {
  readonly #folder: string;
  /** By id, the oldest first. */
  readonly #kept = new Map<string, Kept>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Where the record of a job stands. */
  pathOf(id: string): string {
    return `${this.#folder}${sep}${id}.jsonl`;
  }

  /**
   * Creates a record, durable on return: complete or not there at all, so that a process that dies here leaves none
   * without a beginning. @throws where there is one.
   */
  async create(id: string, text: string, draft: string): Promise<void> {
    const path = this.pathOf(id);
    if (!(await createExclusively(path, text, draft))) throw new Error(`${path} exists`);
    const stat = lstatSync(path, { throwIfNoEntry: false });
    if (stat?.size === Buffer.byteLength(text)) this.#keep(id, stat, decodeEvents(text));
  }

  /** Adds a line to a record, durable on return but where `isDurable` is false. */
  async append(id: string, line: string, isDurable: boolean): Promise<void> {
    const kept = this.#kept.get(id);
    const isKept = (stat: Stats): boolean => kept?.version === versionOf(stat);
    const { before, after } = await appendFile(this.pathOf(id), line, tornEnd, {
      isDurable,
      isWhole: isKept,
    });
    if (kept !== undefined && isKept(before) && after.size === before.size + Buffer.byteLength(line))
      this.#keep(id, after, [...kept.lines, ...decodeEvents(line)]);
  }

  /** The job as the fold of its events, undefined where there is none. */
  read(id: string): Job | undefined {
    if (!jobIdForm.test(id)) return undefined;
    const found = this.#find(id);
    if (found === undefined) return undefined;
    return foldJob(id, found.lines, lifeOf) ?? damagedJob(id, found.text ?? '', found.lines, lifeOf);
  }

  /** The events of a record, `undefined` for a line that cannot be read. */
  events(id: string): (RecordedEvent | undefined)[] {
    return [...(this.#find(id)?.lines ?? decodeEvents(''))];
  }

  /** A text that is another one after whatever becomes of a record; undefined where there is none. */
  version(id: string): string | undefined {
    const stat = lstatSync(this.pathOf(id), { throwIfNoEntry: false });
    return stat && versionOf(stat);
  }

  /** Ids of all records, newest first. */
  ids(): string[] {
    const ids = readdirSync(this.#folder).map((name) => name.slice(0, -'.jsonl'.length));
    return ids
      .filter((id) => jobIdForm.test(id))
      .sort()
      .reverse();
  }

  /** Removes a record. */
  remove(id: string): void {
    removeFile(this.pathOf(id));
  }

  #find(id: string): { text?: string; lines: Kept['lines'] } | undefined {
    try {
      const kept = this.#kept.get(id);
      if (kept !== undefined && kept.version === this.version(id)) return kept;
      const read = readTail(this.pathOf(id), () => 0);
      if (read === undefined) return undefined;
      const text = read.tail.toString('utf8');
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
    if (this.#kept.size > mostKept) this.#kept.delete(this.#kept.keys().next().value ?? '');
  }
}

// What says nothing about the file: this process has too much open.
const shortages = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

// Nothing writes to a record but by adding to it.
function versionOf({ ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${ino} ${size} ${mtimeMs} ${ctimeMs}`;
}
