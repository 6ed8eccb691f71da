const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const known = new Uint8Array(256);
for (const character of alphabet) known[character.charCodeAt(0)] = 1;
const [minus, underscore, equals] = [0x2d, 0x5f, 0x3d];

const strict = /^[A-Za-z0-9+/]*={0,2}$/;

/**
 * Whether a text is strict Base64 (specification 2.1, 4.1): the standard alphabet, padded to a multiple of four, no
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
   * Decodes the next piece into `out` at `offset`, where there must be room for {@link roomFor} bytes.
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

  // Groups that contain another character: the padded last one, or a fault.
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
