import { ByteBuffer } from '../media/byte-buffer.ts';

/** The default limit of a frame in bytes: over an hour of speech. */
export const largestFrame = 16 * 1024 * 1024;

const [quote, backslash, open, close, lineFeed, carriageReturn] = [0x22, 0x5c, 0x7b, 0x7d, 0x0a, 0x0d];

// Allowed between frames, and dropped: white space, commas, the separators of JSON sequences.
const gap = /[\s,\0\x1e]/;
// As its bytes are read here.
const byteOrderMark = '\xef\xbb\xbf';
// The prefix of SSE before a frame, and its lines that carry none.
const beforeFrame = /^(data:\s*)?$/;
const fieldLine = /^(:|(event|id|retry):)/;
const emptyLine = /^(data:\s*(\[DONE\]\s*)?)?$/;
const longestLine = 8 * 1024;

/**
 * Splits a stream of JSON frames (specification 4.4) on bytes: frames that are adjacent, separated by newlines (or
 * what else separates JSON) or prefixed as server-sent events, in chunks that are cut anywhere. A frame is handed out with the chunk that
 * completes it. Memory is bounded by the largest frame.
 */
export class FrameSplitter {
  /** Why this is not a stream of frames, from the first fault on; nothing is handed out after it. */
  fault: string | undefined;
  #inFrame = false;
  /** Braces that are open. */
  #depth = 0;
  #inString = false;
  /** True if the next byte of a string is escaped by the one before it. */
  #escaped = false;
  /** The beginning of a frame that goes on in the next chunk, and the memory for the next one of the kind. */
  #begun: ByteBuffer;
  #spare: ByteBuffer;
  /** The text between frames on the current line from its first word on, a character for each byte. */
  #line = '';
  readonly #limit: number;
  readonly #clean: (text: string) => string;

  /**
   * @param limit the largest frame that is taken, bytes
   * @param clean takes secrets out of what is shown of a line that is no frame
   */
  constructor(limit: number = largestFrame, clean = (text: string): string => text) {
    this.#limit = limit;
    this.#clean = clean;
    this.#begun = new ByteBuffer(limit);
    this.#spare = new ByteBuffer(limit);
  }

  /**
   * Takes the next bytes of the stream; returns the frames that they complete, in their order. Those are good as long
   * as the chunk is, and until the next one.
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
      const frame = this.#joined(bytes.subarray(from, end));
      if (!this.#inFrame && frame !== undefined) frames.push(frame);
      from = end;
    }
    return frames;
  }

  /** Ends the stream: a frame that is not whole, or text after the last one, is a fault. */
  end(): void {
    if (this.#inFrame) this.fault ??= 'the stream ends inside a frame';
    else this.#endLine();
  }

  // Up to the next frame's opening brace, which is not taken yet, or the chunk's end.
  #skip(bytes: Buffer, from: number): number {
    for (let at = from; at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0;
      if (byte === open && !fieldLine.test(this.#line)) {
        this.#begin();
        return at;
      }
      if (byte === lineFeed || byte === carriageReturn) this.#endLine();
      else this.#extendLine(String.fromCharCode(byte));
      if (this.#line.length > longestLine) this.#failOnLine();
      if (this.fault !== undefined) return bytes.length;
    }
    return bytes.length;
  }

  #extendLine(character: string): void {
    if (this.#line === '' && gap.test(character)) return;
    this.#line += character;
    if (this.#line === byteOrderMark) this.#line = '';
  }

  #begin(): void {
    if (!beforeFrame.test(this.#line)) this.#failOnLine();
    this.#line = '';
    this.#inFrame = true;
  }

  #endLine(): void {
    if (!fieldLine.test(this.#line) && !emptyLine.test(this.#line)) this.#failOnLine();
    this.#line = '';
  }

  #failOnLine(): void {
    const line = Buffer.from(this.#line, 'latin1').toString().trim();
    // Cleaned before it is cut: half a Base64 key is not recognised.
    const shown = this.#clean(line).slice(0, 200);
    const page = /^<(!doctype|html)/i.test(shown) ? ' (a web page: check the base URL)' : '';
    this.fault ??= `the stream holds what is no frame: ${shown}${page}`;
  }

  // Behind the frame's closing brace, or the chunk's end.
  #scan(bytes: Buffer, from: number): number {
    let at = from;
    while (at < bytes.length) {
      if (this.#inString) {
        at = this.#stringEnd(bytes, at);
        continue;
      }
      const byte = bytes[at];
      at += 1;
      if (byte === quote) this.#inString = true;
      else if (byte === open) this.#depth += 1;
      else if (byte === close && (this.#depth -= 1) === 0) {
        this.#inFrame = false;
        return at;
      }
    }
    return at;
  }

  // Behind the string's closing quote, or the chunk's end. The search is native: frames are nearly all string.
  #stringEnd(bytes: Buffer, from: number): number {
    const start = this.#escaped ? from + 1 : from;
    this.#escaped = false;
    for (let at = start; ;) {
      const found = bytes.indexOf(quote, at);
      const end = found < 0 ? bytes.length : found;
      const isEscaped = backslashesBefore(bytes, end, start) % 2 === 1;
      if (found < 0) {
        this.#escaped = isEscaped;
        return bytes.length;
      }
      at = found + 1;
      if (!isEscaped) {
        this.#inString = false;
        return at;
      }
    }
  }

  // A frame whose last piece this is, as it came if it came in one piece; undefined for an earlier piece.
  #joined(piece: Buffer): Buffer | undefined {
    const begun = this.#begun;
    const isOnePiece = !this.#inFrame && begun.length === 0 && piece.length <= this.#limit;
    if (isOnePiece) return piece;
    if (!begun.append(piece)) this.fault ??= `a frame exceeds ${this.#limit} bytes`;
    if (this.#inFrame || this.fault !== undefined) return undefined;
    [this.#begun, this.#spare] = [this.#spare, begun];
    return begun.taken();
  }
}

function backslashesBefore(bytes: Buffer, end: number, start: number): number {
  let at = end;
  while (at > start && bytes[at - 1] === backslash) at -= 1;
  return end - at;
}
