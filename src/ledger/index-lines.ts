import { hash } from 'node:crypto';
import type { Ids } from './job-id.ts';

/**
 * What a line of the index says of a job: the hash of what it asks for or of its handle, that it has succeeded, or that
 * it was removed. `filler` says nothing.
 */
export type IndexKind = 'fingerprint' | 'handle' | 'succeeded' | 'removed' | 'filler';

/** One line of the index. */
export interface IndexEntry {
  kind: IndexKind;
  id: string;
  /** What the job is found by; '' if the kind says everything. */
  value: string;
}

// SUM KIND ID HASH\n, every line of one length that is a whole number of 32-bit words.
const marks: Record<IndexKind, string> = {
  fingerprint: 'f',
  handle: 'h',
  succeeded: 's',
  removed: 'r',
  filler: 'x',
};
const [fingerprintMark, removedMark, succeededMark] = [0x66, 0x72, 0x73];
const kindAt = 5;
const idAt = 7;
const hashAt = 26;
const lineLength = 44;
const newline = 0x0a;
/** A search of all lines takes 3 ms for 100,000 jobs; making a table of them takes 100. */
const maxSearches = 16;

/** The line of an entry. */
export function indexLine({ kind, id, value }: IndexEntry): string {
  const line = Buffer.from(`     ${marks[kind]} ${id} ${hashOf(value)}\n`, 'latin1');
  new DataView(line.buffer, line.byteOffset).setInt32(0, sumOf(viewOf(line), 0), true);
  return line.toString('latin1');
}

function hashOf(value: string): string {
  return hash('sha256', value).slice(0, 17);
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

// A checksum of 20 bits as four letters. The last steps are those of MurmurHash3: every bit of the line changes it.
function sumOf(view: DataView, at: number): number {
  let sum = 0x2f0b4a87;
  for (let word = at + 4; word < at + lineLength; word += 4)
    sum = Math.imul(sum ^ view.getInt32(word, true), 0x01000193);
  sum = Math.imul(sum ^ (sum >>> 16), 0x85ebca6b);
  sum = Math.imul(sum ^ (sum >>> 13), 0xc2b2ae35);
  return ((sum ^ (sum >>> 16)) & 0x1f1f1f1f) | 0x40404040;
}

function isWhole(view: DataView, at: number): boolean {
  return view.getUint8(at + lineLength - 1) === newline && view.getInt32(at, true) === sumOf(view, at);
}

// Adds where whole lines begin; returns how far lines are complete.
function addWhole(starts: number[], bytes: Buffer, view: DataView, from: number, end: number): number {
  let at = from;
  while (at + lineLength <= end) {
    if (isWhole(view, at)) {
      starts.push(at);
      at += lineLength;
      continue;
    }
    const next = bytes.subarray(0, end).indexOf(newline, at);
    if (next < 0) break;
    at = next + 1;
  }
  return at;
}

function idsIn(bytes: Buffer): (start: number) => string {
  return (start) => bytes.toString('latin1', start + idAt, start + hashAt - 1);
}

/** The lines of an index that are whole; torn and damaged lines are skipped. */
export class IndexLines {
  #buffer = Buffer.alloc(0);
  #view = viewOf(this.#buffer);
  #length = 0;
  #checked = 0;
  /** Where each whole line begins. */
  #starts: number[] = [];
  #searches = 0;
  /** Lines by the beginning of their hash, as far as they were entered. */
  #table = new Map<number, number[]>();
  #entered = 0;

  /** Bytes that were added so far. */
  get length(): number {
    return this.#length;
  }

  /** How many lines are whole. */
  get count(): number {
    return this.#starts.length;
  }

  /** Forgets all lines. */
  clear(): void {
    this.#length = this.#checked = this.#entered = 0;
    // Lists of ids that were handed out keep the memory they read from.
    this.#buffer = Buffer.alloc(0);
    this.#view = viewOf(this.#buffer);
    this.#starts = [];
    this.#table.clear();
  }

  /** Room for so many further bytes, which {@link add} takes in. */
  room(bytes: number): Buffer {
    const length = this.#length + bytes;
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length + 65_536, 2 * this.#length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
      this.#view = viewOf(larger);
    }
    return this.#buffer.subarray(this.#length, length);
  }

  /** Takes in so many bytes that were read into the {@link room}. */
  add(bytes: number): void {
    this.#length += bytes;
    this.#checked = addWhole(this.#starts, this.#buffer, this.#view, this.#checked, this.#length);
  }

  /** The jobs of a value, in the order of their lines. */
  find(kind: IndexKind, value: string): string[] {
    const mark = marks[kind].charCodeAt(0);
    const wanted = hashOf(value);
    this.#searches += 1;
    const found = this.#searches > maxSearches ? this.#lookUp(wanted) : this.#search(wanted);
    return found.filter((start) => this.#buffer[start + kindAt] === mark).map((start) => this.#idAt(start));
  }

  /**
   * Ids of all jobs that were not removed since, the highest first, without those that have succeeded if so asked. An id
   * becomes a string when it is asked for: of 100,000 few are looked at.
   */
  ids(leaveOutSucceeded: boolean): Ids {
    const starts: number[] = [];
    const out = new Set<string>();
    let isSorted = true;
    for (let n = this.#starts.length - 1; n >= 0; n -= 1) {
      const start = this.#starts[n] ?? 0;
      const mark = this.#buffer[start + kindAt];
      if (mark === removedMark || (mark === succeededMark && leaveOutSucceeded)) out.add(this.#idAt(start));
      if (mark !== fingerprintMark || (out.size > 0 && out.has(this.#idAt(start)))) continue;
      isSorted &&= starts.length === 0 || this.#isBefore(start, starts.at(-1) ?? 0);
      starts.push(start);
    }
    const idAt = idsIn(this.#buffer);
    if (!isSorted) return [...new Set(starts.map(idAt))].sort().reverse();
    return {
      length: starts.length,
      at: (index) => {
        const start = starts.at(index);
        return start === undefined ? undefined : idAt(start);
      },
      slice: (start, end) => starts.slice(start, end).map(idAt),
    };
  }

  /** Ids that were removed and not added since. */
  removed(): Set<string> {
    const ids = new Set<string>();
    for (const start of this.#starts) {
      const mark = this.#buffer[start + kindAt];
      if (mark === removedMark) ids.add(this.#idAt(start));
      else if (mark === fingerprintMark && ids.size > 0) ids.delete(this.#idAt(start));
    }
    return ids;
  }

  /** Whether there is a line of this kind about a job. */
  has(kind: IndexKind, id: string): boolean {
    const mark = marks[kind].charCodeAt(0);
    return this.#starts.some((start) => this.#buffer[start + kindAt] === mark && this.#idAt(start) === id);
  }

  /** The highest id of the last 1000 lines; undefined if there is none. */
  get highest(): string | undefined {
    const ids = this.#starts.slice(-1000).map((start) => this.#idAt(start));
    return ids.reduce<string | undefined>(
      (one, other) => (one === undefined || other > one ? other : one),
      undefined,
    );
  }

  #idAt(start: number): string {
    return idsIn(this.#buffer)(start);
  }

  // Whether the id of one line is lower than that of another; both begin alike.
  #isBefore(one: number, other: number): boolean {
    const view = this.#view;
    for (let at = idAt + 4; at < idAt + 16; at += 4) {
      const difference = view.getUint32(one + at) - view.getUint32(other + at);
      if (difference !== 0) return difference < 0;
    }
    return view.getUint16(one + idAt + 16) < view.getUint16(other + idAt + 16);
  }

  #search(wanted: string): number[] {
    const bytes = this.#buffer.subarray(0, this.#checked);
    const found: number[] = [];
    for (let at = bytes.indexOf(wanted); at >= 0; at = bytes.indexOf(wanted, at + 1)) {
      const start = at - hashAt;
      if (start >= 0 && isWhole(this.#view, start)) found.push(start);
    }
    return found;
  }

  #lookUp(wanted: string): number[] {
    for (; this.#entered < this.#starts.length; this.#entered += 1) {
      const start = this.#starts[this.#entered] ?? 0;
      const key = keyOf(this.#buffer.toString('latin1', start + hashAt, start + hashAt + 12));
      const others = this.#table.get(key);
      if (others === undefined) this.#table.set(key, [start]);
      else others.push(start);
    }
    const starts = this.#table.get(keyOf(wanted)) ?? [];
    return starts.filter(
      (start) => this.#buffer.toString('latin1', start + hashAt, start + lineLength - 1) === wanted,
    );
  }
}

// As many digits as a number holds exactly.
function keyOf(hash: string): number {
  return parseInt(hash.slice(0, 12), 16);
}
