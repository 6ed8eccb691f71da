import { fstatSync, readSync } from 'node:fs';

const windowBytes = 4096;
const minHeaderBytes = 8;
const maxHeaderBytes = 16;
// The maximum number of boxes and table entries to read, because reading more would take too long. A clip has a few
// hundred boxes, and at most one entry per frame.
const maxBoxes = 1_000_000;

/** Whether bytes begin an MP4 (or QuickTime) file: `ftyp` at bytes 4 to 8. */
export function startsMp4(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1', 4, 8) === 'ftyp';
}

// File access is synchronous, because the data was just written and is still cached. The thread pool would take ten
// times as long.

/**
 * Checks that an MP4 is a complete video. Reads its top-level boxes, including boxes with 64-bit sizes and a last box
 * without a size. The boxes must end where the file ends, and include an index (of the whole file or of a fragment) and
 * media data. Reads only headers.
 * @param file the file's descriptor, open for reading
 * @returns undefined if the file is not an MP4
 * @throws file system errors
 */
export function mp4In(file: number): { flaw: string | undefined } | undefined {
  const reader = new HeaderReader(file);
  return startsMp4(reader.at(0)) ? { flaw: findFlaw(reader, fstatSync(file).size) } : undefined;
}

const indexTypes = new Set(['moov', 'moof', 'meta']);

function findFlaw(reader: HeaderReader, size: number): string | undefined {
  let hasIndex = false;
  let hasContent = false;
  for (let at = 0, boxes = 1; at < size; boxes += 1) {
    if (boxes > maxBoxes) return `there are more than ${maxBoxes} boxes`;
    const box = boxAt(reader.at(at), size - at);
    if (typeof box === 'string') return `${box} at byte ${at} of ${size}`;
    hasIndex ||= indexTypes.has(box.type);
    hasContent ||= box.type === 'mdat' && box.size > box.headerSize;
    at += box.size;
  }
  return hasIndex && hasContent ? undefined : 'it contains nothing to play';
}

/** A box's header. */
interface Box {
  type: string;
  /** The box's size in bytes, including the header. */
  size: number;
  headerSize: number;
}

/**
 * Parses a box's header. `remaining` is the number of file bytes from the box's start. Returns a description of the
 * problem if the box is invalid.
 */
function boxAt(header: Buffer, remaining: number): Box | string {
  if (header.length < minHeaderBytes) return 'a box header is truncated';
  const type = header.toString('latin1', 4, 8);
  // A type has four printable characters. QuickTime types may also contain the copyright sign.
  if (!/^[\x20-\x7e\xa9]{4}$/.test(type)) return 'there is no box';
  const declaredSize = header.readUInt32BE(0);
  const headerSize = declaredSize === 1 ? maxHeaderBytes : minHeaderBytes;
  if (header.length < headerSize) return 'a box header is truncated';
  if (declaredSize === 0) return { type, size: remaining, headerSize };
  const size = declaredSize === 1 ? Number(header.readBigUInt64BE(8)) : declaredSize;
  if (size < headerSize) return `box ${type} is smaller than its header`;
  return size > remaining ? `box ${type} extends beyond the end` : { type, size, headerSize };
}

// Shared by all walks, because each one ends before the next begins.
const windowBuffer = Buffer.alloc(windowBytes);

/** Reads a few bytes at any position in a file. Reads ahead, so that small boxes do not each need a read. */
export class HeaderReader {
  readonly #file: number;
  #start = 0;
  #length = 0;

  constructor(file: number) {
    this.#file = file;
  }

  /**
   * Returns up to `length` bytes (at most 4096) at a position, fewer at the end of the file. The bytes are valid
   * until the next call.
   */
  at(position: number, length = maxHeaderBytes): Buffer {
    const isInside = position >= this.#start && position + length <= this.#start + this.#length;
    if (!isInside) this.#fill(position, length);
    return windowBuffer.subarray(
      position - this.#start,
      Math.min(position - this.#start + length, this.#length),
    );
  }

  #fill(position: number, length: number): void {
    this.#start = position;
    this.#length = 0;
    for (;;) {
      const freeBytes = windowBytes - this.#length;
      const bytesRead = readSync(this.#file, windowBuffer, this.#length, freeBytes, position + this.#length);
      this.#length += bytesRead;
      if (bytesRead === 0 || this.#length >= length) return;
    }
  }
}

/** The position of a box's content, in bytes from the beginning of the file. */
export interface Content {
  type: string;
  start: number;
  end: number;
}

/**
 * Reads a file's boxes and their table entries, a few KiB at a time. Stops at an invalid box, and after more boxes and
 * entries than any clip has.
 */
export class BoxWalk {
  readonly #reader: HeaderReader;
  #steps = 0;

  /** @param file the file's descriptor, open for reading */
  constructor(file: number) {
    this.#reader = new HeaderReader(file);
  }

  /** Whether the file has too many boxes and entries to be a clip. */
  get isExhausted(): boolean {
    return this.#steps > maxBoxes;
  }

  /** Ends the walk. */
  exhaust(): void {
    this.#steps = Infinity;
  }

  /** Visits each box in a range of the file. */
  each({ start, end }: Pick<Content, 'start' | 'end'>, visit: (box: Content) => void): void {
    for (let at = start; at < end && this.#step();) {
      const box = boxAt(this.#reader.at(at), end - at);
      if (typeof box === 'string') return;
      visit({ type: box.type, start: at + box.headerSize, end: at + box.size });
      at += box.size;
    }
  }

  /**
   * Returns a box's first `length` bytes (at most 4096), valid until the next call; undefined if the box is shorter.
   */
  bytes({ start, end }: Pick<Content, 'start' | 'end'>, length: number): Buffer | undefined {
    if (end - start < length) return undefined;
    const bytes = this.#reader.at(start, length);
    return bytes.length === length ? bytes : undefined;
  }

  /** Whether a box has version 1, in which times have 64 bits. */
  isLong(box: Content): boolean {
    return this.bytes(box, 1)?.[0] === 1;
  }

  /**
   * Visits the entries of a table, which consists of a count, `skipped` bytes, and the entries. Stops at
   * the end of the box.
   */
  entries(table: Content, size: number, visit: (entry: Buffer) => void, skipped = 0): void {
    const count = this.bytes(table, 4)?.readUInt32BE(0) ?? 0;
    const firstEntry = table.start + 4 + skipped;
    for (let index = 0; index < count && this.#step(); index++) {
      const entry = this.bytes({ start: firstEntry + index * size, end: table.end }, size);
      if (entry === undefined) return;
      visit(entry);
    }
  }

  /** Counts a box or a table entry. Returns false if there were too many. */
  #step(): boolean {
    this.#steps += 1;
    return !this.isExhausted;
  }
}

/** The number of bytes that {@link isText} needs from the beginning of a body. */
export const headBytes = 64;

/**
 * Whether a body is text (JSON, HTML, XML, plain) and not media, according to its type and first bytes. An MP4 is
 * always media, regardless of its declared type.
 */
export function isText(head: Uint8Array, contentType: string | undefined): boolean {
  if (startsMp4(head)) return false;
  if (isTextType(contentType)) return true;
  const text = Buffer.from(head)
    .toString('latin1')
    .replace(/^\xef\xbb\xbf/, '')
    .trimStart();
  if (/^text\//i.test(contentType ?? '')) return !/[\0-\x08\x0e-\x1a]/.test(text);
  return /^(\{\s*["}]|\[\s*["{[\]]|<[!?a-z])/i.test(text);
}

/** Whether a content type rules out media. */
export function isTextType(contentType: string | undefined): boolean {
  return /^\s*(text\/(html|xml|json)|application\/([\w.-]+\+)?(json|xml))\b/i.test(contentType ?? '');
}

/**
 * Returns a body's MIME type: the type in its header if that is a media type, or else `video/mp4` for an MP4;
 * otherwise undefined.
 */
export function mimeOf(isMp4: boolean, contentType: string | undefined): string | undefined {
  const declaredType = (contentType ?? '').replace(/;.*/s, '').trim().toLowerCase();
  if (/^(video|audio|image)\/[\w.+-]+$/.test(declaredType)) return declaredType;
  return isMp4 ? 'video/mp4' : undefined;
}
