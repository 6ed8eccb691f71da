import { hash } from 'node:crypto';
import { statSync, type Stats } from 'node:fs';
import { readTail } from './durable-file.ts';
import { hashLength, idStart, LineTable, search } from './line-table.ts';

/** What jobs are looked up by; `removed` marks a job whose record was taken away on purpose. */
export type IndexKind = 'fingerprint' | 'handle' | 'key' | 'removed';

/** One line of the index: a job goes by a value. */
export interface IndexEntry {
  kind: IndexKind;
  value: string;
  id: string;
}

const idLength = 18;
const lineLength = idStart + idLength + 1;
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
  #table = new LineTable(lineLength);

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
    const read = readTail(this.#path, ({ ino, size, mtimeMs }) => {
      const isOld = ino === this.#seen?.ino && (size > this.#length || mtimeMs === this.#seen.mtimeMs);
      if (!isOld || size < this.#length) this.#forget();
      return this.#length;
    });
    if (read === undefined) this.#forget();
    else this.#append(read.tail);
    this.#seen = read?.stat;
  }

  /** Whose value it is: newest first; damage may have made an id none. With an id, only that job's lines count. */
  idsIn(entry: IndexEntry): string[] {
    const [bytes, hashes] = [this.bytes, hashesOf(entry)];
    this.#searches += 1;
    if (this.#searches > mostSearches) this.#table.extend(bytes);
    const found = this.#searches > mostSearches ? this.#table.find(bytes, hashes) : search(bytes, hashes);
    const places = [...found].sort((one, other) => other - one);
    const ids = places.map((place) => bytes.toString('latin1', place, place + idLength));
    return [...new Set(ids)].filter((id) => entry.id === '' || id === entry.id);
  }

  #forget(): void {
    this.#length = 0;
    this.#hasNul = false;
    this.#table = new LineTable(lineLength);
  }

  #append(tail: Buffer): void {
    this.#hasNul ||= tail.includes(0);
    for (const id of idsOf(tail.subarray(-lately)))
      if (this.#highest === undefined || id > this.#highest) this.#highest = id;
    const length = this.#length + tail.length;
    if (length > this.#buffer.length) {
      const larger = Buffer.alloc(Math.max(length, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    tail.copy(this.#buffer, this.#length);
    this.#length = length;
  }
}

function isSame(one: Stats, other: Stats | undefined): boolean {
  return one.ino === other?.ino && one.mtimeMs === other.mtimeMs && one.ctimeMs === other.ctimeMs;
}

/** The line of an entry: two hashes, so that no single damage makes a job unseen, and the job's id. */
export function lineOf(entry: IndexEntry): string {
  return `${hashesOf(entry).join('')} ${entry.id}\n`;
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
