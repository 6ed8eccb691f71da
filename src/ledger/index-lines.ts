import { hash } from 'node:crypto';
import { statSync, type Stats } from 'node:fs';
import { readTail } from './durable-file.ts';
import { IdTable } from './id-table.ts';
import type { Ids } from './job-id.ts';
import {
  eachLine,
  hashLength,
  idLength,
  idStart,
  lineLength,
  LineTable,
  removal,
  search,
} from './line-table.ts';

/**
 * What jobs are looked up by; `id` marks one that goes by nothing else, `removed` one whose record was taken away on
 * purpose.
 */
export type IndexKind = 'fingerprint' | 'handle' | 'id' | 'key' | 'removed';

/** One line of the index: a job goes by a value. */
export interface IndexEntry {
  kind: IndexKind;
  value: string;
  id: string;
}

/** Bytes. */
const lately = 64 * 1024;
/** So many searches are quicker than making a table of all lines. */
const mostSearches = 32;

/** The lines of an index as they stand in its file; what was read once is kept, and only what was added is read. */
export class IndexLines {
  readonly #path: string;
  #buffer = Buffer.alloc(0);
  #length = 0;
  #hasNul = false;
  #highest: string | undefined;
  #seen: Stats | undefined;
  #searches = 0;
  /** Of a hash: where its lines' ids begin, as far as was searched. */
  #found = new Map<string, { places: Set<number>; end: number }>();
  #table = new LineTable();

  constructor(path: string) {
    this.#path = path;
  }

  /** All of it as it was read last. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  /** True where a block of it was lost. */
  get hasNul(): boolean {
    return this.#hasNul;
  }

  /** The highest id of those that were added lately. */
  get highest(): string | undefined {
    return this.#highest;
  }

  /** The file as it was when it was read last, the same object until it changes; undefined where there was none. */
  get seen(): Stats | undefined {
    return this.#seen;
  }

  // Synchronous: it is asked several times for each submission, and takes a tenth of a trip to the thread pool.
  /** Reads what is new. */
  refresh(): void {
    const now = statSync(this.#path, { throwIfNoEntry: false });
    if (now !== undefined && isSame(now, this.#seen) && now.size === this.#length) return;
    const read = readTail(
      this.#path,
      ({ ino, size, mtimeMs }) => {
        const isOld = ino === this.#seen?.ino && (size > this.#length || mtimeMs === this.#seen.mtimeMs);
        if (!isOld || size < this.#length) this.#forget();
        return this.#length;
      },
      (bytes) => this.#room(bytes),
    );
    if (read === undefined) this.#forget();
    else this.#append(read.tail);
    this.#seen = read?.stat;
  }

  /** Whose value it is, newest first, and where; damage may have made an id none. */
  find(kind: IndexKind, value: string): Map<string, number> {
    const bytes = this.bytes;
    const hashes = hashesOf({ kind, value });
    this.#searches += 1;
    if (this.#searches > mostSearches) this.#table.extend(bytes);
    const found = this.#searches > mostSearches ? this.#table.find(bytes, hashes) : this.#search(hashes);
    const newest = new Map<string, number>();
    for (const place of [...found].sort((one, other) => other - one)) {
      const id = bytes.toString('latin1', place, place + idLength);
      if (!newest.has(id)) newest.set(id, place);
    }
    return newest;
  }

  /** True where a job was removed after the line at a place was written. */
  isRemoved(id: string, place: number): boolean {
    return search(this.bytes.subarray(place), hashesOf({ kind: 'removed', value: id })).size > 0;
  }

  /** Ids of all jobs that were not removed, newest first, without those of another file of lines. */
  ids(without: Buffer): Ids {
    const bytes = this.bytes;
    const table = new IdTable(bytes, Math.ceil(bytes.length / lineLength));
    eachLine(bytes, lineLength, (start) => {
      if (bytes[start + idStart - 1] === removal) table.remove(bytes, start + idStart);
      else table.add(start + idStart);
    });
    eachLine(without, idLength + 1, (start) => table.remove(without, start));
    return table.ids();
  }

  #forget(): void {
    this.#length = 0;
    this.#hasNul = false;
    this.#found.clear();
    this.#table = new LineTable();
  }

  #append(tail: Buffer): void {
    this.#hasNul ||= tail.includes(0);
    for (const id of idsOf(tail.subarray(-lately)))
      if (this.#highest === undefined || id > this.#highest) this.#highest = id;
    this.#length += tail.length;
  }

  // For what is read next. What is added soon has room from the beginning.
  #room(bytes: number): Buffer {
    const length = this.#length + bytes;
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(length + lately, 2 * this.#length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    return this.#buffer.subarray(this.#length, length);
  }

  #search(hashes: readonly [string, string]): Set<number> {
    const known = this.#found.get(hashes[0]) ?? { places: new Set<number>(), end: 0 };
    // A line that was not whole may be by now.
    const start = Math.max(0, known.end - lineLength);
    for (const place of search(this.bytes.subarray(start), hashes)) known.places.add(start + place);
    this.#found.set(hashes[0], { ...known, end: this.#length });
    return known.places;
  }
}

function isSame(one: Stats, other: Stats | undefined): boolean {
  return one.ino === other?.ino && one.mtimeMs === other.mtimeMs && one.ctimeMs === other.ctimeMs;
}

/** The line of an entry: two hashes, so that no single damage makes a job unseen, a mark of its kind, and the job's id. */
export function lineOf(entry: IndexEntry): string {
  const mark = entry.kind === 'removed' ? String.fromCharCode(removal) : ' ';
  return `${hashesOf(entry).join('')}${mark}${entry.id}\n`;
}

/** The two hashes of a kind and a value. */
export function hashesOf({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): [string, string] {
  const digits = hash('sha256', `${kind}\n${value}`);
  return [digits.slice(0, hashLength), digits.slice(hashLength, 2 * hashLength)];
}

/** Either hash of a line with its id: enough to find it. */
export function hashesWithIds(bytes: Buffer): Set<string> {
  const lines = bytes.toString('latin1').matchAll(/^(.{16})(.{16}) (job_[0-9a-z]{14})$/gm);
  return new Set(
    Array.from(lines, ([, first = '', second = '', id = '']) => [first + id, second + id]).flat(),
  );
}

/** The ids of all lines that can be read, in their order. */
export function idsOf(bytes: Buffer): string[] {
  return bytes.toString('latin1').match(/job_[0-9a-z]{14}(?=\n)/g) ?? [];
}

/** The ids of all lines that tell of a removal, each once. */
export function removedIds(bytes: Buffer): Set<string> {
  return new Set(bytes.toString('latin1').match(/(?<=-)job_[0-9a-z]{14}(?=\n)/g));
}
