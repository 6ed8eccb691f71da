import { excerptOf } from '../http/failures.ts';
import { ByteBuffer } from '../media/buffers.ts';

/** Default maximum size of a frame, in bytes: over an hour of speech. */
export const maxFrameBytes = 16 * 1024 * 1024;

const [quote, backslash, open, close, lineFeed, carriageReturn] = [0x22, 0x5c, 0x7b, 0x7d, 0x0a, 0x0d];
const space = 0x20;

// Ignored between frames: white space, commas and the separators of JSON sequences.
const separator = /[\s,\0\x1e]/;
// The UTF-8 byte order mark, with one character for each byte.
const byteOrderMark = '\xef\xbb\xbf';
// The prefix of a frame in server-sent events, and event lines that contain no frame.
const framePrefix = /^(data:\s*)?$/;
const fieldLine = /^(:|(event|id|retry):)/;
const emptyLine = /^(data:\s*(\[DONE\]\s*)?)?$/;
const maxLineLength = 8 * 1024;
// The prefix of a frame's additional lines in server-sent events. JSON contains it only in strings.
const linePrefix = Buffer.from('data:');

/**
 * Splits a stream of bytes into JSON frames (specification 4.4). Frames may be adjacent, separated by newlines or other
 * JSON separators, or prefixed as server-sent events, and chunks may end anywhere. Returns a frame with the chunk that
 * completes it. Memory is bounded by the largest frame.
 */
export class FrameSplitter {
  /** The first fault of the stream. No frames are returned after it. */
  fault: string | undefined;
  #inFrame = false;
  /** The number of open braces. */
  #depth = 0;
  #inString = false;
  /** Whether a backslash escapes the next byte of the string. */
  #escaped = false;
  /** The number of matched bytes of a line prefix inside the frame. */
  #prefixLength = 0;
  /** The start of a frame that continues in the next chunk, and the memory for the next such frame. */
  #partial: ByteBuffer;
  #spare: ByteBuffer;
  /** The text outside frames on the current line, without leading separators. One character per byte. */
  #line = '';
  readonly #limit: number;
  readonly #clean: (text: string) => string;

  /**
   * @param limit the maximum size of a frame, in bytes
   * @param clean removes secrets from an invalid line before it is displayed
   */
  constructor(limit: number = maxFrameBytes, clean = (text: string): string => text) {
    this.#limit = limit;
    this.#clean = clean;
    this.#partial = new ByteBuffer(limit);
    this.#spare = new ByteBuffer(limit);
  }

  /**
   * Adds the next bytes of the stream. Returns the frames that these bytes complete, in order. A frame is valid only
   * until the next call, and only while the chunk is unchanged. Overwrites prefixes inside a frame with spaces.
   */
  push(chunk: Uint8Array): Buffer[] {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
    const frames: Buffer[] = [];
    for (let from = 0; from < bytes.length && this.fault === undefined;) {
      if (!this.#inFrame) {
        from = this.#skip(bytes, from);
        continue;
      }
      const end = this.#scan(bytes, from);
      const frame = this.#completeFrame(bytes.subarray(from, end));
      if (!this.#inFrame && frame !== undefined) frames.push(frame);
      from = end;
    }
    return frames;
  }

  /** Ends the stream. An incomplete frame, or text after the last frame, is a fault. */
  end(): void {
    if (this.#inFrame) this.fault ??= 'the stream ends inside a frame';
    else this.#endLine();
  }

  // Returns the index of the next frame's opening brace, or the length of the chunk if there is none.
  #skip(bytes: Buffer, from: number): number {
    for (let at = from; at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0;
      if (byte === open && !fieldLine.test(this.#line)) {
        this.#begin();
        return at;
      }
      if (byte === lineFeed || byte === carriageReturn) this.#endLine();
      else this.#extendLine(String.fromCharCode(byte));
      if (this.#line.length > maxLineLength) this.#failOnLine();
      if (this.fault !== undefined) return bytes.length;
    }
    return bytes.length;
  }

  #extendLine(character: string): void {
    if (this.#line === '' && separator.test(character)) return;
    this.#line += character;
    if (this.#line === byteOrderMark) this.#line = '';
  }

  #begin(): void {
    if (!framePrefix.test(this.#line)) this.#failOnLine();
    this.#line = '';
    this.#inFrame = true;
  }

  #endLine(): void {
    if (!fieldLine.test(this.#line) && !emptyLine.test(this.#line)) this.#failOnLine();
    this.#line = '';
  }

  #failOnLine(): void {
    const line = Buffer.from(this.#line, 'latin1').toString().trim();
    this.fault ??= `the stream contains an invalid frame: ${excerptOf(line, this.#clean)}`;
  }

  // Returns the index after the frame's closing brace, or the length of the chunk if there is none.
  #scan(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length) {
      if (this.#inString) {
        at = this.#stringEnd(bytes, at);
        continue;
      }
      const byte = bytes[at];
      at += 1;
      if (byte === linePrefix[this.#prefixLength]) {
        bytes[at - 1] = space;
        this.#prefixLength = (this.#prefixLength + 1) % linePrefix.length;
        continue;
      }
      this.#prefixLength = 0;
      if (byte === quote) this.#inString = true;
      else if (byte === open) this.#depth += 1;
      else if (byte === close && (this.#depth -= 1) === 0) {
        this.#inFrame = false;
        return at;
      }
    }
    return at;
  }

  // Returns the index after the string's closing quote, or the length of the chunk if there is none. Uses a native
  // search, because frames consist almost entirely of strings.
  #stringEnd(bytes: Buffer, from: number): number {
    const start = this.#escaped ? from + 1 : from;
    this.#escaped = false;
    for (let at = start; ;) {
      const quoteIndex = bytes.indexOf(quote, at);
      const end = quoteIndex < 0 ? bytes.length : quoteIndex;
      const isEscaped = backslashesBefore(bytes, end, start) % 2 === 1;
      if (quoteIndex < 0) {
        this.#escaped = isEscaped;
        return bytes.length;
      }
      at = quoteIndex + 1;
      if (!isEscaped) {
        this.#inString = false;
        return at;
      }
    }
  }

  // Returns the frame that ends with this piece; undefined if the frame is not complete. A frame in one piece is not
  // copied.
  #completeFrame(piece: Buffer): Buffer | undefined {
    const partial = this.#partial;
    const isOnePiece = !this.#inFrame && partial.length === 0 && piece.length <= this.#limit;
    if (isOnePiece) return piece;
    if (!partial.append(piece)) this.fault ??= `a frame exceeds ${this.#limit} bytes`;
    if (this.#inFrame || this.fault !== undefined) return undefined;
    [this.#partial, this.#spare] = [this.#spare, partial];
    return partial.takeAll();
  }
}

function backslashesBefore(bytes: Buffer, end: number, start: number): number {
  let at = end;
  while (at > start && bytes[at - 1] === backslash) at -= 1;
  return end - at;
}
