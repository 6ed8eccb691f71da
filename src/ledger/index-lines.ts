import { createHash } from 'node:crypto';
import { readTail } from './durable-file.ts';

/** What jobs are looked up by; `removed` marks a job whose record was taken away on purpose. */
export type IndexKind = 'fingerprint' | 'handle' | 'key' | 'removed';

/** One line of the index: a job goes by a value. */
export interface IndexEntry {
  kind: IndexKind;
  value: string;
  id: string;
}

const hashLength = 16;
const idLength = 18;
const lineLength = 2 * hashLength + 1 + idLength + 1;
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
  #seen = { ino: -1, mtimeMs: -1 };
  #searches = 0;
  /** Places of lines by each of their hashes, up to {@link #tabled}; of no use where a line has another length. */
  #table = new Map<number, number[]>();
  #tabled = 0;
  #isRegular = true;

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

  /** Reads what is new. */
  refresh(): void {
    const read = readTail(this.#path, ({ ino, size, mtimeMs }) => {
      const isSame = ino === this.#seen.ino && (size > this.#length || mtimeMs === this.#seen.mtimeMs);
      if (!isSame || size < this.#length) this.#forget();
      return this.#length;
    });
    if (read === undefined) this.#forget();
    else {
      this.#seen = read.stat;
      this.#append(read.tail);
    }
  }

  /** Whose value it is: newest first; damage may have made an id none. With an id, only that job's lines count. */
  idsIn(entry: IndexEntry): string[] {
    this.#searches += 1;
    const places = this.#searches > mostSearches ? this.#lookUp(entry) : undefined;
    if (places === undefined) return idsIn(this.bytes, entry);
    const ids = places.map((place) => this.#idAt(place));
    return [...new Set(ids)].filter((id) => entry.id === '' || id === entry.id);
  }

  #forget(): void {
    this.#length = 0;
    this.#hasNul = false;
    this.#table.clear();
    this.#tabled = 0;
    this.#isRegular = true;
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

  // Undefined where the lines are not all of one length: the text has to be searched then.
  #lookUp(entry: IndexEntry): number[] | undefined {
    while (this.#isRegular && this.#tabled + lineLength <= this.#length) this.#addToTable(this.#tabled);
    if (!this.#isRegular || this.#tabled !== this.#length) return undefined;
    const found = new Set<number>();
    for (const [index, hash] of hashesOf(entry).entries())
      for (const place of this.#table.get(tableKey(hash)) ?? [])
        if (
          this.#buffer.toString('latin1', place + index * hashLength, place + (index + 1) * hashLength) ===
          hash
        )
          found.add(place);
    return [...found].sort((one, other) => other - one);
  }

  #addToTable(place: number): void {
    const line = this.#buffer.toString('latin1', place, place + lineLength);
    this.#isRegular = line.endsWith('\n') && line.indexOf('\n') === lineLength - 1;
    this.#tabled += lineLength;
    for (const start of [0, hashLength]) {
      const key = tableKey(line.slice(start, start + hashLength));
      const places = this.#table.get(key);
      if (places === undefined) this.#table.set(key, [place]);
      else places.push(place);
    }
  }

  #idAt(place: number): string {
    const start = place + 2 * hashLength + 1;
    return this.#buffer.toString('latin1', start, start + idLength);
  }
}

// As much of a hash as a number holds exactly; NaN for what damage has made of one.
function tableKey(hash: string): number {
  return Number.parseInt(hash.slice(0, 12), 16);
}

/** The line of an entry: two hashes, so that no single damage makes a job unseen, and the job's id. */
export function lineOf(entry: IndexEntry): string {
  return `${hashesOf(entry).join('')} ${entry.id}\n`;
}

/** The two hashes of a kind and a value. */
export function hashesOf({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): [string, string] {
  const hash = createHash('sha256').update(`${kind}\n${value}`).digest('hex');
  return [hash.slice(0, hashLength), hash.slice(hashLength, 2 * hashLength)];
}

function idsIn(bytes: Buffer, entry: IndexEntry): string[] {
  const [first, second] = hashesOf(entry);
  const found = new Map<number, string>();
  for (const [hash, skip] of [
    [first, 2 * hashLength + 1],
    [second, hashLength + 1],
  ] as const) {
    for (let at = bytes.indexOf(hash); at >= 0; at = bytes.indexOf(hash, at + 1))
      found.set(at + skip, bytes.toString('latin1', at + skip, at + skip + idLength));
  }
  const places = [...found.keys()].sort((one, other) => other - one);
  const ids = places.map((place) => found.get(place) ?? '');
  return [...new Set(ids)].filter((id) => entry.id === '' || id === entry.id);
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
