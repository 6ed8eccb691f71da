/** Writes bits, most significant first, to a buffer that grows as needed. */
export class BitWriter {
  #bytes = new Uint8Array(1024);
  #length = 0;
  #pending = 0;
  #pendingBits = 0;

  /** The number of bits written. */
  get bitLength(): number {
    return this.#length * 8 + this.#pendingBits;
  }

  /** Appends the low `count` bits of `value`; `count` is at most 24. */
  bits(value: number, count: number): this {
    this.#pending = (this.#pending << count) | (value & ((1 << count) - 1));
    this.#pendingBits += count;
    while (this.#pendingBits >= 8) {
      this.#pendingBits -= 8;
      this.#push((this.#pending >>> this.#pendingBits) & 0xff);
    }
    this.#pending &= (1 << this.#pendingBits) - 1;
    return this;
  }

  /** Appends an unsigned Exp-Golomb code, `ue(v)` in H.264 9.1. */
  ue(value: number): this {
    const code = value + 1;
    const length = 32 - Math.clz32(code);
    return this.bits(0, length - 1).bits(code, length);
  }

  /** Appends a signed Exp-Golomb code, `se(v)` in H.264 9.1.1. */
  se(value: number): this {
    return this.ue(value > 0 ? value * 2 - 1 : -value * 2);
  }

  /** Fills the last byte with zero bits. */
  align(): this {
    return this.#pendingBits === 0 ? this : this.bits(0, 8 - this.#pendingBits);
  }

  /** Returns a copy of the complete bytes written so far. */
  toBytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }

  #push(byte: number): void {
    if (this.#length === this.#bytes.length) {
      const larger = new Uint8Array(this.#length * 2);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes[this.#length++] = byte;
  }
}
