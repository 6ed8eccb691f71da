/** Digits of a hash. */
export const hashLength = 16;
/** Where a line's id begins: after two hashes and a blank. */
export const idStart = 2 * hashLength + 1;
const blank = 0x20;
/** Digits and letters of a job's id. */
export const idLength = 18;
/** Of a line, with its end. */
export const lineLength = idStart + idLength + 1;
/** What stands there in the place of the blank where the line says that a job was removed. */
export const removal = 0x2d;
const newline = 0x0a;

/** Bytes of an Int32, of which a line is a whole number; written out, since the build puts only literals where they are used. */
const wordLength = 4;
const hashWords = hashLength / wordLength;
const markWord = (idStart - 1) / wordLength;
const lineWords = lineLength / wordLength;
/** The word that ends a line's blank, or what stands there, and begins its id. */
const marks = [blank, removal].map((mark) => firstWord(`${String.fromCharCode(mark)}job`));

/**
 * The lines of an index by either of the hashes that each begins with, so that a look-up does not search all of them.
 * What is no whole line (torn by a crash, or closed off) is kept apart, and searched.
 */
export class LineTable {
  /** Starts of whole lines, by the beginning of each of their hashes. */
  readonly #lines = new Map<number, number | number[]>();
  /** From and to. */
  readonly #others: [number, number][] = [];
  #end = 0;

  /** Takes in what was added to the bytes that it has seen. */
  extend(bytes: Buffer): void {
    for (let end = bytes.indexOf(newline, this.#end); end >= 0; end = bytes.indexOf(newline, this.#end)) {
      const start = this.#end;
      this.#end = end + 1;
      if (this.#end - start === lineLength && isMark(bytes[start + idStart - 1])) {
        this.#add(keyAt(bytes, start), start);
        this.#add(keyAt(bytes, start + hashLength), start);
      } else if (end > start) this.#others.push([start, this.#end]);
    }
  }

  /** Where the ids of the lines with one of an entry's two hashes begin, in no order; `bytes` are those that it has seen. */
  find(bytes: Buffer, hashes: readonly [string, string]): Set<number> {
    const found = new Set<number>();
    for (const [index, hash] of hashes.entries()) {
      const lines = this.#lines.get(keyAt(Buffer.from(hash, 'latin1'), 0)) ?? [];
      for (const line of typeof lines === 'number' ? [lines] : lines) {
        const start = line + index * hashLength;
        if (bytes.toString('latin1', start, start + hashLength) === hash) found.add(line + idStart);
      }
    }
    for (const [from, to] of this.#others) addFound(found, bytes, from, to, hashes);
    addFound(found, bytes, this.#end, bytes.length, hashes);
    return found;
  }

  #add(key: number, line: number): void {
    const lines = this.#lines.get(key);
    if (lines === undefined) this.#lines.set(key, line);
    else if (typeof lines === 'number') this.#lines.set(key, [lines, line]);
    else lines.push(line);
  }
}

function isMark(byte: number | undefined): boolean {
  return byte === blank || byte === removal;
}

/** Visits the starts of all lines of one length; what was torn is passed over, whether it was closed off or not. */
export function eachLine(bytes: Buffer, length: number, visit: (start: number) => void): void {
  for (let start = 0, end = 0; start + length <= bytes.length; start = end) {
    end = start + length;
    if (bytes[end - 1] !== newline) end = bytes.indexOf(newline, start) + 1;
    if (end === 0) return;
    if (end - start >= length) visit(end - length);
  }
}

function addFound(
  found: Set<number>,
  bytes: Buffer,
  from: number,
  to: number,
  hashes: readonly [string, string],
): void {
  if (from < to) for (const id of search(bytes.subarray(from, to), hashes)) found.add(from + id);
}

/** Where the ids of the lines with one of an entry's two hashes begin, in no order. */
export function search(bytes: Buffer, hashes: readonly [string, string]): Set<number> {
  const found = new Set<number>();
  for (let start = 0; start < bytes.length;) {
    // Nearly all is whole lines, and one word of each hash tells the few that are worth comparing.
    start = searchWhole(bytes, start, hashes, found);
    const end = (isAligned(bytes, start) && bytes.indexOf(newline, start) + 1) || bytes.length;
    searchText(bytes.subarray(start, end), start, hashes, found);
    start = end;
  }
  return found;
}

// As far as one whole line follows another; returns where they end. After something torn most lines are not aligned.
function searchWhole(
  bytes: Buffer,
  from: number,
  hashes: readonly [string, string],
  found: Set<number>,
): number {
  if (!isAligned(bytes, from)) return from;
  const words = new Int32Array(
    bytes.buffer,
    bytes.byteOffset + from,
    Math.floor((bytes.length - from) / wordLength),
  );
  const [first, second] = hashes.map(firstWord);
  const [added, removed] = marks;
  let line = 0;
  // Nothing is read outside of the words: what V8 has compiled for the loop would be thrown away.
  for (; line + lineWords <= words.length; line += lineWords) {
    const mark = words[line + markWord];
    const start = from + line * wordLength;
    if ((mark !== added && mark !== removed) || bytes[start + lineLength - 1] !== newline) break;
    if (words[line] === first || words[line + hashWords] === second)
      searchText(bytes.subarray(start, start + lineLength), start, hashes, found);
  }
  return from + line * wordLength;
}

function isAligned(bytes: Buffer, start: number): boolean {
  return (bytes.byteOffset + start) % wordLength === 0;
}

function firstWord(text: string): number | undefined {
  return new Int32Array(Uint8Array.from(Buffer.from(text.slice(0, wordLength), 'latin1')).buffer)[0];
}

function searchText(
  text: Buffer,
  offset: number,
  [first, second]: readonly [string, string],
  found: Set<number>,
): void {
  for (const [hash, skip] of [
    [first, idStart],
    [second, idStart - hashLength],
  ] as const) {
    for (let at = text.indexOf(hash); at >= 0; at = text.indexOf(hash, at + 1)) found.add(offset + at + skip);
  }
}

// As much of a hash as a number holds exactly: twelve digits. What damage has made of one gives some number as well.
function keyAt(bytes: Buffer, start: number): number {
  let key = 0;
  for (let at = start; at < start + 12; at += 1) {
    const digit = bytes[at] ?? 0;
    key = key * 16 + ((digit & 0xf) + (digit >> 6) * 9);
  }
  return key;
}
