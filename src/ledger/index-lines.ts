import { hash } from 'node:crypto';
import type { Ids } from './names.ts';

/** What an index line records about a job: a fingerprint or a handle (as a hash), its success, or its removal. */
export type IndexKind = 'fingerprint' | 'handle' | 'succeeded' | 'removed';

/** A decoded index line. */
export interface IndexEntry {
  kind: IndexKind;
  id: string;
  /** The fingerprint or the handle; '' for the other kinds. */
  value: string;
}

// A line is SUM KIND ID HASH\n without the spaces, and the ID lacks its `job_` prefix. All lines have the same length,
// a whole number of 32-bit words. They are short, because a submission reads a line for each job.
const marks: Record<IndexKind, string> = {
  fingerprint: 'f',
  handle: 'h',
  succeeded: 's',
  removed: 'r',
};
const [fingerprintMark, removedMark, succeededMark] = [0x66, 0x72, 0x73];
const kindAt = 4;
const idAt = 5;
const hashAt = 19;
const lineLength = 32;
const prefix = 'job_';
const newline = 0x0a;
const newlineAt = lineLength - 1;
/** Number of searches before a table is built. For 100,000 jobs, a search takes 3 ms and the table 100 ms. */
const maxSearches = 16;

/** Encodes an entry as a line. */
export function indexLine({ kind, id, value }: IndexEntry): string {
  const line = Buffer.from(`    ${marks[kind]}${id.slice(prefix.length)}${shortHash(value)}\n`, 'latin1');
  new DataView(line.buffer, line.byteOffset).setInt32(0, sumOf(viewOf(line), 0), true);
  return line.toString('latin1');
}

function shortHash(value: string): string {
  return hash('sha256', value, 'base64url').slice(0, newlineAt - hashAt);
}

/** Returns a view of the bytes. Reading numbers from it is faster than from the buffer. */
export function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

// Returns a 20-bit checksum as four letters. The last steps are those of MurmurHash3, so that every bit of the line
// affects the checksum.
function sumOf(view: DataView, at: number): number {
  let sum = 0x2f0b4a87;
  for (let word = at + 4; word < at + lineLength; word += 4)
    sum = Math.imul(sum ^ view.getInt32(word, true), 0x01000193);
  sum = Math.imul(sum ^ (sum >>> 16), 0x85ebca6b);
  sum = Math.imul(sum ^ (sum >>> 13), 0xc2b2ae35);
  return ((sum ^ (sum >>> 16)) & 0x1f1f1f1f) | 0x40404040;
}

function isValidLine(view: DataView, at: number): boolean {
  return view.getInt32(at, true) === sumOf(view, at);
}

/** Returns the total of the lines' checksums. */
export function totalOf(lines: readonly string[]): number {
  return lines.reduce((sum, line) => sum + numberOf(Buffer.from(line, 'latin1').readInt32LE()), 0);
}

/** Decodes four letters: each encodes five bits. */
export function numberOf(word: number): number {
  return (word & 0x1f) | ((word >> 3) & 0x3e0) | ((word >> 6) & 0x7c00) | ((word >> 9) & 0xf8000);
}

// Compares the ids in two lines. Returns a number below 0 if the first id is lower, and 0 if the ids are equal.
function compareIds(left: DataView, leftOffset: number, right: DataView, rightOffset: number): number {
  for (let at = idAt; at < idAt + 12; at += 4) {
    const difference = left.getUint32(leftOffset + at) - right.getUint32(rightOffset + at);
    if (difference !== 0) return difference;
  }
  return left.getUint16(leftOffset + idAt + 12) - right.getUint16(rightOffset + idAt + 12);
}

function idsIn(bytes: Buffer): (start: number) => string {
  return (start) => prefix + bytes.toString('latin1', start + idAt, start + hashAt);
}

/** The valid lines of an index. Torn and damaged lines are skipped. */
export class IndexLines {
  /** The inode of the file that was read last. */
  inode: number | undefined;
  /** The sum of the lines' checksums, modulo 2 ** 20. */
  total = 0;
  #buffer = Buffer.alloc(0);
  #view = viewOf(this.#buffer);
  #length = 0;
  #checkedLength = 0;
  /**
   * The offsets of the valid lines, in the first `#count` elements. A plain array of 300,000 elements would cost 20 ms
   * of garbage collection.
   */
  #offsets = new Uint32Array(0);
  #count = 0;
  #searches = 0;
  /** Line offsets by the line's hash, for the first `#tableCount` lines. */
  #table = new Map<string, number[]>();
  #tableCount = 0;
  /** The highest id in the lines that {@link highest} has read, up to `#comparedCount`. */
  #highest: string | undefined;
  #comparedCount = 0;

  /** The number of bytes added. */
  get length(): number {
    return this.#length;
  }

  get #starts(): Uint32Array {
    return this.#offsets.subarray(0, this.#count);
  }

  /** Discards all lines. */
  clear(): void {
    this.#length = this.#checkedLength = this.#count = this.#tableCount = this.#comparedCount = 0;
    this.total = 0;
    this.#highest = undefined;
    // Use a new buffer, because lists of ids returned earlier still read the old one.
    this.#useBuffer(Buffer.alloc(0));
    this.#table.clear();
  }

  #useBuffer(buffer: Buffer<ArrayBuffer>): void {
    this.#buffer = buffer;
    this.#view = viewOf(buffer);
  }

  /** Returns free space for the given number of bytes. After writing to that space, call {@link add}. */
  reserve(bytes: number): Buffer {
    const length = this.#length + bytes;
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length + 65_536, 2 * this.#length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#useBuffer(larger);
      const offsets = new Uint32Array(Math.floor(larger.length / lineLength));
      offsets.set(this.#starts);
      this.#offsets = offsets;
    }
    return this.#buffer.subarray(this.#length, length);
  }

  /** Processes bytes that were written to the free space from {@link reserve}. */
  add(bytes: number): void {
    this.#length += bytes;
    const [view, offsets, end] = [this.#view, this.#offsets, this.#length];
    let [at, count, total] = [this.#checkedLength, this.#count, this.total];
    while (at + lineLength <= end) {
      if (isValidLine(view, at)) {
        offsets[count] = at;
        count += 1;
        total += numberOf(view.getInt32(at, true));
        at += lineLength;
        continue;
      }
      const next = this.#buffer.subarray(0, end).indexOf(newline, at);
      if (next < 0) break;
      at = next + 1;
    }
    [this.#checkedLength, this.#count, this.total] = [at, count, total & 0xfffff];
  }

  /** Returns the ids of jobs with the given fingerprint or handle, in line order. */
  find(kind: IndexKind, value: string): string[] {
    const mark = marks[kind].charCodeAt(0);
    const wantedHash = shortHash(value);
    this.#searches += 1;
    const starts = this.#searches > maxSearches ? this.#lookUp(wantedHash) : this.#search(wantedHash);
    return starts.filter((start) => this.#buffer[start + kindAt] === mark).map((start) => this.#idAt(start));
  }

  /**
   * Returns the ids of all jobs that were not removed, highest first, except jobs that succeeded according to
   * `outcomes`. An id is decoded only when it is read, because callers read only a few of up to 100,000 ids.
   */
  ids(outcomes?: IndexLines): Ids {
    const addedStarts: number[] = [];
    const removed = new Set<string>();
    for (const start of this.#starts.toReversed()) {
      const mark = this.#buffer[start + kindAt];
      if (mark === removedMark) removed.add(this.#idAt(start));
      if (mark !== fingerprintMark || (removed.size > 0 && removed.has(this.#idAt(start)))) continue;
      addedStarts.push(start);
    }
    const sortedStarts = this.#sorted(addedStarts);
    const starts = outcomes === undefined ? sortedStarts : this.#excludeSucceeded(outcomes, sortedStarts);
    const idAt = idsIn(this.#buffer);
    return {
      length: starts.length,
      at: (index) => {
        const start = starts.at(index);
        return start === undefined ? undefined : idAt(start);
      },
      slice: (start, end) => starts.slice(start, end).map(idAt),
    };
  }

  /** Returns the ids of jobs that were removed and not added again. */
  removed(): Set<string> {
    const ids = new Set<string>();
    for (const start of this.#starts) {
      const mark = this.#buffer[start + kindAt];
      if (mark === removedMark) ids.add(this.#idAt(start));
      else if (mark === fingerprintMark && ids.size > 0) ids.delete(this.#idAt(start));
    }
    return ids;
  }

  /** Whether a job has a line of the given kind. */
  has(kind: IndexKind, id: string): boolean {
    const mark = marks[kind].charCodeAt(0);
    return this.#starts.some((start) => this.#buffer[start + kindAt] === mark && this.#idAt(start) === id);
  }

  /** The highest id in the last 1000 lines, and in lines read by earlier calls; undefined if there are no lines. */
  get highest(): string | undefined {
    const newStarts = this.#starts.subarray(Math.max(this.#comparedCount, this.#count - 1000));
    for (const id of Array.from(newStarts, idsIn(this.#buffer)))
      if (this.#highest === undefined || id > this.#highest) this.#highest = id;
    this.#comparedCount = this.#count;
    return this.#highest;
  }

  #idAt(start: number): string {
    return idsIn(this.#buffer)(start);
  }

  // Returns lines sorted by id, highest first, with one line per id. Sorting takes little time, because most lines are
  // in order.
  #sorted(starts: number[]): number[] {
    const view = this.#view;
    return starts
      .sort((one, other) => compareIds(view, other, view, one))
      .filter((start, n) => n === 0 || compareIds(view, start, view, starts[n - 1] ?? 0) !== 0);
  }

  #excludeSucceeded(outcomes: IndexLines, sortedStarts: readonly number[]): number[] {
    const lines = outcomes.#starts.toReversed();
    const isSuccess = (start: number): boolean => outcomes.#buffer[start + kindAt] === succeededMark;
    const succeeded = outcomes.#sorted([...lines.filter(isSuccess)]);
    let next = 0;
    const orderOfNext = (start: number): number =>
      compareIds(outcomes.#view, succeeded[next] ?? 0, this.#view, start);
    return sortedStarts.filter((start) => {
      while (next < succeeded.length && orderOfNext(start) > 0) next += 1;
      return next === succeeded.length || orderOfNext(start) !== 0;
    });
  }

  #search(wantedHash: string): number[] {
    const bytes = this.#buffer.subarray(0, this.#checkedLength);
    const starts: number[] = [];
    for (let at = bytes.indexOf(wantedHash); at >= 0; at = bytes.indexOf(wantedHash, at + 1)) {
      const start = at - hashAt;
      if (start >= 0 && isValidLine(this.#view, start)) starts.push(start);
    }
    return starts;
  }

  #lookUp(wantedHash: string): number[] {
    for (; this.#tableCount < this.#count; this.#tableCount += 1) {
      const start = this.#offsets[this.#tableCount] ?? 0;
      const lineHash = this.#buffer.toString('latin1', start + hashAt, start + newlineAt);
      const bucket = this.#table.get(lineHash);
      if (bucket === undefined) this.#table.set(lineHash, [start]);
      else bucket.push(start);
    }
    return this.#table.get(wantedHash) ?? [];
  }
}
