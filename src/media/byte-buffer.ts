/** A growing buffer with a limit. */
export class ByteBuffer {
  length = 0;
  #bytes = Buffer.alloc(0);
  readonly #limit: number;

  /**
   * @param limit the maximum length, bytes
   */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Appends as much as fits; false if not everything did. */
  append(bytes: Uint8Array): boolean {
    const fitting = bytes.subarray(0, this.#limit - this.length);
    this.#reserve(this.length + fitting.length);
    this.#bytes.set(fitting, this.length);
    this.length += fitting.length;
    return fitting.length === bytes.length;
  }

  /** Removes everything from `start` on, and returns a copy of it. */
  cut(start: number): Buffer {
    const end = Buffer.from(this.#bytes.subarray(start, this.length));
    this.length = start;
    return end;
  }

  /** Removes everything, and returns it, valid until the next {@link append}. */
  taken(): Buffer {
    const all = this.#bytes.subarray(0, this.length);
    this.length = 0;
    return all;
  }

  /** The bytes decoded as UTF-8. */
  toString(): string {
    return this.#bytes.toString('utf8', 0, this.length);
  }

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const grown = Buffer.alloc(Math.min(this.#limit, Math.max(size, this.#bytes.length * 2, 4096)));
    grown.set(this.#bytes.subarray(0, this.length));
    this.#bytes = grown;
  }
}
