/** Returns the packets of an Ogg Opus stream, without its two headers. */
export function packetsOf(stream: Uint8Array): Buffer[] {
  const file = Buffer.from(stream);
  const packets: Buffer[] = [];
  for (let at = 0; at < file.length;) {
    const lengths = [...file.subarray(at + 27, at + 27 + file.readUInt8(at + 26))];
    at += 27 + lengths.length;
    for (const length of lengths) packets.push(file.subarray(at, (at += length)));
  }
  return packets.slice(2);
}

/**
 * Returns the period of a CELT packet's pitch filter, in samples at 48 kHz (RFC 6716 4.3), or undefined for a silent
 * packet. Throws if the packet is of another kind or a band does not have the expected loudness.
 */
export function readOpusPitch(packet: Buffer): number | undefined {
  if (packet[0] !== 0x98) throw new Error('not 20 ms of CELT, 4 kHz, mono, in one frame');
  const decoder = new RangeDecoder(packet.subarray(1));
  if (decoder.bit(15)) return undefined;
  if (!decoder.bit(1)) throw new Error('no pitch');
  const octave = decoder.symbol(Array.from({ length: 6 }, () => 1));
  const period = 16 * 2 ** octave + decoder.raw(4 + octave) - 1;
  if (decoder.raw(3) !== 7) throw new Error('not the highest gain');
  decoder.symbol([2, 1, 1]);
  if (decoder.bit(3) || !decoder.bit(3))
    throw new Error('a transient, or a prediction from the frame before');
  for (const zero of [22, 63, 74, 84, 92, 103, 96, 96, 101, 107, 113, 118, 125]) {
    if (packet.length * 8 - 8 - decoder.bits < 15) throw new Error('too short for the energy of each band');
    if (decoder.symbol([zero * 128, 32_768 - zero * 128]) !== 0) throw new Error('a band of another energy');
  }
  return period;
}

/** The range decoder of RFC 6716 4.1. */
class RangeDecoder {
  #bytes: Buffer;
  #at = 0;
  #range = 128;
  #value: number;
  #rest: number;
  #raw = 0;
  #total = 9;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#rest = this.#next();
    this.#value = this.#range - 1 - (this.#rest >> 1);
    this.#fill();
  }

  get bits(): number {
    return this.#total - (32 - Math.clz32(this.#range)) + this.#raw;
  }

  bit(rarity: number): boolean {
    return this.symbol([2 ** rarity - 1, 1]) === 1;
  }

  /** Decodes a symbol and returns its index. `frequencies` contains the frequency of each symbol. */
  symbol(frequencies: readonly number[]): number {
    const total = frequencies.reduce((sum, frequency) => sum + frequency, 0);
    const step = Math.floor(this.#range / total);
    const place = total - Math.min(Math.floor(this.#value / step) + 1, total);
    let low = 0;
    const index = frequencies.findIndex((frequency) => (low += frequency) > place);
    const width = frequencies[index] ?? 0;
    const above = step * (total - low);
    this.#value -= above;
    this.#range = low === width ? this.#range - above : step * width;
    this.#fill();
    return index;
  }

  raw(count: number): number {
    let value = 0;
    for (let bit = 0; bit < count; bit += 1, this.#raw += 1) {
      const byte = this.#bytes[this.#bytes.length - 1 - (this.#raw >> 3)] ?? 0;
      value += ((byte >> (this.#raw & 7)) & 1) * 2 ** bit;
    }
    return value;
  }

  #fill(): void {
    while (this.#range <= 2 ** 23) {
      const byte = this.#next();
      const symbol = ((this.#rest << 8) | byte) >> 1;
      this.#rest = byte;
      this.#range *= 256;
      this.#value = (this.#value * 256 + (255 - (symbol & 255))) % 2 ** 31;
      this.#total += 8;
    }
  }

  #next(): number {
    return this.#bytes[this.#at++] ?? 0;
  }
}
