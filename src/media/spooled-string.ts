import type { SpooledMedia } from '../exchange.ts';

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const inAlphabet = new Uint8Array(256);
for (const character of alphabet) inAlphabet[character.charCodeAt(0)] = 1;
const [minus, underscore, equals] = [0x2d, 0x5f, 0x3d];

const strictBase64 = /^[A-Za-z0-9+/]*={0,2}$/;

/**
 * Whether a string is strict Base64 (specification 2.1, 4.1): the standard alphabet, padded to a multiple of four,
 * without white space or a Data URL prefix. The empty string is valid.
 */
export function isBase64(text: string): boolean {
  return text.length % 4 === 0 && strictBase64.test(text);
}

/**
 * Decodes strict Base64 that arrives in pieces of any length. Ignores unused bits before the padding, since
 * they encode no byte.
 */
export class Base64Stream {
  /** The reason why the input is not strict Base64. Decoding stops at the first problem. */
  fault: string | undefined;
  #position = 0;
  #isEnded = false;
  #groupLength = 0;
  readonly #group = Buffer.alloc(4);

  /**
   * Decodes the next piece into `out` at `offset`, where there must be room for {@link maxDecodedLength} bytes. Returns
   * the number of bytes written.
   */
  decode(piece: Buffer, out: Buffer, offset: number): number {
    if (this.fault !== undefined) return 0;
    const from = this.#groupLength > 0 ? Math.min(4 - this.#groupLength, piece.length) : 0;
    this.#addToGroup(piece.subarray(0, from));
    if (this.#groupLength > 0 && this.#groupLength < 4) return 0;
    let byteCount = 0;
    if (this.#groupLength === 4) byteCount = this.#decodeGroups(this.#group, out, offset);
    this.#groupLength = 0;
    const end = from + Math.floor((piece.length - from) / 4) * 4;
    byteCount += this.#decodeGroups(piece.subarray(from, end), out, offset + byteCount);
    this.#addToGroup(piece.subarray(end));
    return byteCount;
  }

  /** Ends the input. An incomplete group is a fault. */
  end(): void {
    if (this.#groupLength > 0) this.fault ??= 'the length of the Base64 is not a multiple of four';
  }

  #addToGroup(bytes: Buffer): void {
    this.#group.set(bytes, this.#groupLength);
    this.#groupLength += bytes.length;
  }

  #decodeGroups(bytes: Buffer, out: Buffer, offset: number): number {
    if (bytes.length === 0 || this.fault !== undefined) return 0;
    const byteCount = this.#isEnded
      ? this.#fail('characters after its padding', 0)
      : decodeClean(bytes, out, offset);
    const result = byteCount ?? this.#lastGroups(bytes, out, offset);
    this.#position += bytes.length;
    return result;
  }

  // Decodes groups that contain a character outside the alphabet. Sets `fault`, unless the character is the padding of
  // the last group.
  #lastGroups(bytes: Buffer, out: Buffer, offset: number): number {
    const invalidIndex = bytes.findIndex((byte) => inAlphabet[byte] === 0);
    const validLength = Math.floor(invalidIndex / 4) * 4;
    const byteCount = out.write(bytes.toString('latin1', 0, validLength), offset, 'base64');
    const lastGroup = bytes.toString('latin1', validLength);
    if (lastGroup.length === 4 && isBase64(lastGroup)) {
      this.#isEnded = true;
      return byteCount + out.write(lastGroup, offset + byteCount, 'base64');
    }
    const isPadding = bytes[invalidIndex] === equals;
    this.#fail(isPadding ? 'wrong padding' : 'a character outside its alphabet', invalidIndex);
    return byteCount;
  }

  #fail(problem: string, index: number): number {
    this.fault = `the Base64 has ${problem} at character ${this.#position + index + 1}`;
    return 0;
  }
}

/** Returns the maximum number of bytes that `length` characters may decode to. */
export function maxDecodedLength(length: number): number {
  return Math.ceil((length + 3) / 4) * 3;
}

// Decodes groups without padding. Returns undefined if the input contains invalid characters. Node's decoder skips
// invalid characters, so a result of full length proves that there are none, except the two URL-safe characters.
function decodeClean(bytes: Buffer, out: Buffer, offset: number): number | undefined {
  const byteCount = out.write(bytes.toString('latin1'), offset, 'base64');
  const isComplete = byteCount === (bytes.length / 4) * 3;
  return isComplete && !bytes.includes(minus) && !bytes.includes(underscore) ? byteCount : undefined;
}

/** The destination of decoded media. */
export interface MediaSink {
  /** Writes all of `bytes`, which the sink may use only until the promise is settled. */
  write(bytes: Uint8Array): Promise<void> | void;
  close(): Promise<void>;
}

const [quote, backslash] = [0x22, 0x5c];
const pieceSize = 64 * 1024;
// The buffer size, in bytes: room for 16 decoded pieces, as a compromise between few writes and little memory.
const bufferSize = maxDecodedLength(pieceSize) * 16;
// Represents a character that does not fit in a byte. It is outside the Base64 alphabet.
const foreignByte = 0xff;
const controlCodes: Record<string, number> = { b: 0x08, f: 0x0c, n: 0x0a, r: 0x0d, t: 0x09 };

/** Buffers that successive strings reuse. */
export class SpoolBuffers {
  readonly decoded = Buffer.allocUnsafeSlow(bufferSize);
  readonly unescaped = Buffer.allocUnsafeSlow(pieceSize);
}

/** Decodes the Base64 content of one JSON string into a sink as its bytes arrive. */
export class SpooledString {
  readonly #sink: MediaSink & { path?: string };
  readonly #buffers: SpoolBuffers;
  readonly #base64 = new Base64Stream();
  #bufferedBytes = 0;
  #bytes = 0;
  #escape: string | undefined;

  constructor(sink: MediaSink & { path?: string }, buffers: SpoolBuffers) {
    this.#sink = sink;
    this.#buffers = buffers;
  }

  /**
   * Processes the string's bytes as encoded in the JSON, from the offset `from` on. Returns the position of the
   * string's closing quote, or -1 if the chunk ends before it. Throws the sink's errors.
   */
  async push(chunk: Buffer, from: number): Promise<number> {
    let at = from;
    while (at < chunk.length) {
      const piece = chunk.subarray(at, at + pieceSize);
      const plainBytes = this.#escape === undefined ? plainLength(piece) : 0;
      if (plainBytes > 0) await this.#decode(piece.subarray(0, plainBytes));
      at += plainBytes;
      if (this.#escape === undefined && chunk[at] === quote) return at;
      if (plainBytes < piece.length) at += await this.#unescape(piece.subarray(plainBytes));
    }
    return -1;
  }

  /**
   * Writes the remaining bytes, closes the sink and returns the result. The result has the fault `cut` if the closing
   * quote never arrived.
   */
  async close(cut = false): Promise<SpooledMedia> {
    if (!cut) this.#base64.end();
    await this.#flush();
    await this.#sink.close();
    const fault = cut ? 'cut' : this.#base64.fault;
    return { path: this.#sink.path, bytes: this.#bytes, ...(fault !== undefined && { fault }) };
  }

  /** Closes the sink after a disk error. An error while closing is ignored, because the disk error is reported. */
  async abandon(): Promise<void> {
    await this.#sink.close().catch(() => undefined);
  }

  async #decode(piece: Buffer): Promise<void> {
    const { decoded } = this.#buffers;
    if (this.#bufferedBytes + maxDecodedLength(piece.length) > decoded.length) await this.#flush();
    this.#bufferedBytes += this.#base64.decode(piece, decoded, this.#bufferedBytes);
  }

  async #flush(): Promise<void> {
    if (this.#bufferedBytes === 0) return;
    await this.#sink.write(this.#buffers.decoded.subarray(0, this.#bufferedBytes));
    this.#bytes += this.#bufferedBytes;
    this.#bufferedBytes = 0;
  }

  // Decodes up to the closing quote or the end of the piece. Returns the number of bytes used.
  async #unescape(piece: Buffer): Promise<number> {
    const { unescaped } = this.#buffers;
    let length = 0;
    let at = 0;
    for (; at < piece.length; at += 1) {
      const byte = piece[at] ?? foreignByte;
      if (this.#escape !== undefined) {
        const value = this.#stepEscape(byte);
        if (value !== undefined) unescaped[length++] = value;
      } else if (byte === backslash) this.#escape = '';
      else if (byte === quote) break;
      else unescaped[length++] = byte;
    }
    await this.#decode(unescaped.subarray(0, length));
    return at;
  }

  // Returns an escape's character once the escape is complete; until then undefined.
  #stepEscape(byte: number): number | undefined {
    const escape = `${this.#escape ?? ''}${String.fromCharCode(byte)}`;
    const isComplete = !escape.startsWith('u') || escape.length === 5;
    this.#escape = isComplete ? undefined : escape;
    return isComplete ? escapeValue(escape) : undefined;
  }
}

function plainLength(piece: Buffer): number {
  const end = piece.indexOf(quote);
  const unquoted = end === -1 ? piece : piece.subarray(0, end);
  const escape = unquoted.indexOf(backslash);
  return escape === -1 ? unquoted.length : escape;
}

function escapeValue(escape: string): number {
  if (/^["\\/]$/.test(escape)) return escape.charCodeAt(0);
  const code = /^u[\da-f]{4}$/i.test(escape) ? Number.parseInt(escape.slice(1), 16) : controlCodes[escape];
  return code !== undefined && code < foreignByte ? code : foreignByte;
}
