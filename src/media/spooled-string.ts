import type { SpooledMedia } from '../exchange.ts';
import { Base64Stream, roomFor } from './base64.ts';

/** The destination of decoded media. */
export interface MediaSink {
  /** Writes all of `bytes`, which the sink may use only until the promise is settled. */
  write(bytes: Uint8Array): Promise<void> | void;
  close(): Promise<void>;
}

const [quote, backslash] = [0x22, 0x5c];
const pieceSize = 64 * 1024;
// As many bytes as sixteen pieces decode to: few writes, little memory.
const bufferSize = roomFor(pieceSize) * 16;
// A byte outside the Base64 alphabet, for a character that is not a byte.
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

  /** Closes the sink after an error of the disk, which is reported instead of errors here. */
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

  // The character of an escape, once it is complete.
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
