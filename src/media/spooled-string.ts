import type { SpooledMedia } from '../exchange.ts';

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const known = new Uint8Array(256);
for (const character of alphabet) known[character.charCodeAt(0)] = 1;
const [minus, underscore, equals] = [0x2d, 0x5f, 0x3d];

const strict = /^[A-Za-z0-9+/]*={0,2}$/;

/**
 * Whether a string is strict Base64 (specification 2.1, 4.1): the standard alphabet, padded to a multiple of four, no
 * white space, no Data URL prefix. The empty string is valid.
 */
export function isBase64(text: string): boolean {
  return text.length % 4 === 0 && strict.test(text);
}

/**
 * Decodes one strict Base64 text that arrives in pieces cut anywhere. Unused bits before the padding are ignored, since
 * they encode no byte.
 */
export class Base64Stream {
  /** The first reason why the text is not strict Base64. Decoding stops there. */
  fault: string | undefined;
  #position = 0;
  #ended = false;
  #held = 0;
  readonly #group = Buffer.alloc(4);

  /**
   * Decodes the next piece into `out` at `offset`, which must have room for {@link roomFor} bytes.
   * Returns the number of bytes written.
   */
  decode(piece: Buffer, out: Buffer, offset: number): number {
    if (this.fault !== undefined) return 0;
    const from = this.#held > 0 ? Math.min(4 - this.#held, piece.length) : 0;
    this.#hold(piece.subarray(0, from));
    if (this.#held > 0 && this.#held < 4) return 0;
    let written = 0;
    if (this.#held === 4) written = this.#groups(this.#group, out, offset);
    this.#held = 0;
    const end = from + Math.floor((piece.length - from) / 4) * 4;
    written += this.#groups(piece.subarray(from, end), out, offset + written);
    this.#hold(piece.subarray(end));
    return written;
  }

  /** Ends the text. An incomplete group is a fault. */
  end(): void {
    if (this.#held > 0) this.fault ??= 'the Base64 does not end on a whole group of four characters';
  }

  #hold(bytes: Buffer): void {
    this.#group.set(bytes, this.#held);
    this.#held += bytes.length;
  }

  #groups(bytes: Buffer, out: Buffer, offset: number): number {
    if (bytes.length === 0 || this.fault !== undefined) return 0;
    const written = this.#ended
      ? this.#fail('characters after its padding', 0)
      : decodeClean(bytes, out, offset);
    const result = written ?? this.#lastGroups(bytes, out, offset);
    this.#position += bytes.length;
    return result;
  }

  // Decodes groups that contain a character outside the alphabet: the padded last group, or a fault.
  #lastGroups(bytes: Buffer, out: Buffer, offset: number): number {
    const foreign = bytes.findIndex((byte) => known[byte] === 0);
    const clean = Math.floor(foreign / 4) * 4;
    const written = out.write(bytes.toString('latin1', 0, clean), offset, 'base64');
    const last = bytes.toString('latin1', clean);
    if (last.length === 4 && isBase64(last)) {
      this.#ended = true;
      return written + out.write(last, offset + written, 'base64');
    }
    const padded = bytes[foreign] === equals;
    this.#fail(padded ? 'wrong padding' : 'a character outside its alphabet', foreign);
    return written;
  }

  #fail(what: string, index: number): number {
    this.fault = `the Base64 has ${what} at character ${this.#position + index + 1}`;
    return 0;
  }
}

/** The space in bytes that decoding `length` characters may need. */
export function roomFor(length: number): number {
  return Math.ceil((length + 3) / 4) * 3;
}

// Node's decoder skips invalid characters, so a result of full length proves that there are none, except the two
// URL-safe ones.
function decodeClean(bytes: Buffer, out: Buffer, offset: number): number | undefined {
  const written = out.write(bytes.toString('latin1'), offset, 'base64');
  const whole = written === (bytes.length / 4) * 3;
  return whole && !bytes.includes(minus) && !bytes.includes(underscore) ? written : undefined;
}

/** The destination of decoded media. */
export interface MediaSink {
  /** Writes all of `bytes`, which the sink may use only until the promise is settled. */
  write(bytes: Uint8Array): Promise<void> | void;
  close(): Promise<void>;
}

const [quote, backslash] = [0x22, 0x5c];
const pieceSize = 64 * 1024;
// Holds the decoded bytes of sixteen pieces: few writes, little memory.
const bufferSize = roomFor(pieceSize) * 16;
// Stands for a character that does not fit in a byte. It is outside the Base64 alphabet.
const foreign = 0xff;
const controls: Record<string, number> = { b: 0x08, f: 0x0c, n: 0x0a, r: 0x0d, t: 0x09 };

/** Buffers that are reused for one string after another. */
export class SpoolBuffers {
  readonly decoded = Buffer.allocUnsafeSlow(bufferSize);
  readonly unescaped = Buffer.allocUnsafeSlow(pieceSize);
}

/** One JSON string whose Base64 content is decoded into a sink while its bytes arrive. */
export class SpooledString {
  readonly #sink: MediaSink & { path?: string };
  readonly #buffers: SpoolBuffers;
  readonly #base64 = new Base64Stream();
  #buffered = 0;
  #bytes = 0;
  #escape: string | undefined;

  constructor(sink: MediaSink & { path?: string }, buffers: SpoolBuffers) {
    this.#sink = sink;
    this.#buffers = buffers;
  }

  /**
   * Processes the string's bytes as encoded in the JSON, from the offset `from` on. Returns the position of its closing
   * quote, or -1 if the chunk ends before it. Throws the errors of the sink.
   */
  async push(chunk: Buffer, from: number): Promise<number> {
    let at = from;
    while (at < chunk.length) {
      const piece = chunk.subarray(at, at + pieceSize);
      const plain = this.#escape === undefined ? plainLength(piece) : 0;
      if (plain > 0) await this.#decode(piece.subarray(0, plain));
      at += plain;
      if (this.#escape === undefined && chunk[at] === quote) return at;
      if (plain < piece.length) at += await this.#unescape(piece.subarray(plain));
    }
    return -1;
  }

  /**
   * Writes the remaining bytes, closes the sink and returns the result; with the fault `cut` if the closing quote never
   * arrived.
   */
  async close(cut = false): Promise<SpooledMedia> {
    if (!cut) this.#base64.end();
    await this.#flush();
    await this.#sink.close();
    const fault = cut ? 'cut' : this.#base64.fault;
    return { path: this.#sink.path, bytes: this.#bytes, ...(fault !== undefined && { fault }) };
  }

  /** Closes the sink after a disk error, which is reported instead of any error here. */
  async abandon(): Promise<void> {
    await this.#sink.close().catch(() => undefined);
  }

  async #decode(piece: Buffer): Promise<void> {
    const { decoded } = this.#buffers;
    if (this.#buffered + roomFor(piece.length) > decoded.length) await this.#flush();
    this.#buffered += this.#base64.decode(piece, decoded, this.#buffered);
  }

  async #flush(): Promise<void> {
    if (this.#buffered === 0) return;
    await this.#sink.write(this.#buffers.decoded.subarray(0, this.#buffered));
    this.#bytes += this.#buffered;
    this.#buffered = 0;
  }

  // Decodes up to the closing quote or the end of the piece. Returns the number of bytes used.
  async #unescape(piece: Buffer): Promise<number> {
    const { unescaped } = this.#buffers;
    let length = 0;
    let at = 0;
    for (; at < piece.length; at += 1) {
      const byte = piece[at] ?? foreign;
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

  // Returns the character of an escape once the escape is complete, else undefined.
  #stepEscape(byte: number): number | undefined {
    const escape = `${this.#escape ?? ''}${String.fromCharCode(byte)}`;
    const whole = !escape.startsWith('u') || escape.length === 5;
    this.#escape = whole ? undefined : escape;
    return whole ? escapeValue(escape) : undefined;
  }
}

function plainLength(piece: Buffer): number {
  const end = piece.indexOf(quote);
  const run = end === -1 ? piece : piece.subarray(0, end);
  const escape = run.indexOf(backslash);
  return escape === -1 ? run.length : escape;
}

function escapeValue(escape: string): number {
  if (/^["\\/]$/.test(escape)) return escape.charCodeAt(0);
  const code = /^u[\da-f]{4}$/i.test(escape) ? Number.parseInt(escape.slice(1), 16) : controls[escape];
  return code !== undefined && code < foreign ? code : foreign;
}
