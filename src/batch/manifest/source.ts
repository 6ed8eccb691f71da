import { isUtf8, isAscii } from 'node:buffer';
import { lineBlocks } from '../../files/line-blocks.ts';
import type { Problem } from './fields.ts';

/** A block of complete lines from a file. */
export interface Block {
  bytes: Buffer;
  /** The number of the block's first line. */
  line: number;
}

/** The maximum length of a line, in bytes. It leaves room for an image in Base64. */
export const maxLineBytes = 8 * 1024 * 1024;

const newline = 0x0a;

/** Thrown if the rest of a manifest cannot be read. */
export class Unreadable extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

/** Streams a manifest's text in bounded memory. */
export class Source {
  /** The numbers of lines that are not valid text. They have been reported, and their content is not used. */
  readonly badLines = new Set<number>();
  readonly #chunks: AsyncIterable<Buffer>;
  readonly #report: (problem: Problem) => void;
  #line = 1;

  constructor(chunks: AsyncIterable<Buffer>, report: (problem: Problem) => void, encoding: Encoding) {
    this.#chunks = asUtf8(chunks, encoding);
    this.#report = report;
  }

  /**
   * Reads the file as blocks of complete lines, without a byte order mark. Replaces invalid bytes.
   * @throws Unreadable if a line is longer than 8 MiB.
   */
  async *blocks(): AsyncGenerator<Block> {
    let isAtStart = true;
    const tooLong = (): Error =>
      new Unreadable({ line: this.#line, message: 'the line is longer than 8 MiB' });
    for await (const bytes of lineBlocks(this.#chunks, maxLineBytes, tooLong)) {
      yield this.#block(bytes, isAtStart);
      isAtStart = false;
    }
  }

  #block(bytes: Buffer, isAtStart: boolean): Block {
    const text = isAtStart ? withoutMark(bytes) : bytes;
    const line = this.#line;
    const validText = isUtf8(text) && !text.includes(0) ? text : this.#repair(text);
    this.#line += countLines(text);
    return { bytes: validText, line };
  }

  #repair(bytes: Buffer): Buffer {
    const lines: Buffer[] = [];
    let line = this.#line;
    for (let start = 0; start < bytes.length; line += 1) {
      const end = bytes.indexOf(newline, start);
      const lineBytes = bytes.subarray(start, end < 0 ? bytes.length : end + 1);
      const fault = !isUtf8(lineBytes)
        ? 'it is not valid UTF-8'
        : lineBytes.includes(0)
          ? 'it contains a NUL byte'
          : undefined;
      if (fault !== undefined) {
        this.badLines.add(line);
        this.#report({ line, message: fault });
      }
      lines.push(
        fault === undefined ? lineBytes : Buffer.from(lineBytes.toString('utf8').replaceAll('\0', '\ufffd')),
      );
      start += lineBytes.length;
    }
    return Buffer.concat(lines);
  }
}

function withoutMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

function countLines(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(newline); at >= 0; at = bytes.indexOf(newline, at + 1)) lines += 1;
  return lines;
}

/** The supported encodings of a manifest. */
export type Encoding = 'utf-8' | 'utf-16le' | 'utf-16be' | 'windows-1252';

/**
 * Detects a workbook (a Zip or OLE file), or the encoding of a text file. A byte order mark determines the
 * encoding. Without one, the file is Windows-1252 if it has more invalid than valid non-ASCII UTF-8
 * sequences, and UTF-8 otherwise. A file with bytes that Windows-1252 does not define is treated as UTF-8,
 * and its invalid lines are reported.
 */
export async function detectEncoding(chunks: AsyncIterable<Buffer>): Promise<Encoding | 'workbook'> {
  const [strict, lenient] = [new TextDecoder('utf-8', { fatal: true }), new TextDecoder('utf-8')];
  let [isFirst, isValid, invalidCount, validCount] = [true, true, 0, 0];
  for await (const chunk of chunks) {
    if (isFirst && /^(504b0304|d0cf11e0)/.test(chunk.toString('hex', 0, 4))) return 'workbook';
    if (isFirst && chunk[0] === 0xff && chunk[1] === 0xfe) return 'utf-16le';
    if (isFirst && chunk[0] === 0xfe && chunk[1] === 0xff) return 'utf-16be';
    isFirst = false;
    isValid &&= isDecoded(strict, chunk);
    const text = lenient.decode(chunk, { stream: true });
    if (isAscii(chunk)) continue;
    if ([0x81, 0x8d, 0x8f, 0x90, 0x9d].some((byte) => chunk.includes(byte))) validCount = Infinity;
    invalidCount += text.match(/\ufffd/g)?.length ?? 0;
    validCount += text.match(/[^\0-\x7f\ufffd]/g)?.length ?? 0;
  }
  isValid &&= isDecoded(strict);
  return isValid || invalidCount + lenient.decode().length <= validCount ? 'utf-8' : 'windows-1252';
}

function isDecoded(decoder: InstanceType<typeof TextDecoder>, chunk?: Buffer): boolean {
  try {
    decoder.decode(chunk, { stream: chunk !== undefined });
    return true;
  } catch {
    return false;
  }
}

/** Converts text from the given encoding to UTF-8. */
export async function* asUtf8(chunks: AsyncIterable<Buffer>, encoding: Encoding): AsyncGenerator<Buffer> {
  if (encoding === 'utf-8') {
    yield* chunks;
    return;
  }
  const decoder = new TextDecoder(encoding);
  for await (const chunk of chunks) yield Buffer.from(decoder.decode(chunk, { stream: true }));
  yield Buffer.from(decoder.decode());
}
