import type { Melody } from './scene.ts';

const preSkip = 312;
const packetsPerPage = 20;
/** The gain that players apply, in 1/256 dB. It compensates for packets that are quieter than the other formats. */
const outputGain = 10 * 256;
const streamSerial = 1;
const pageTypes = { first: 2, last: 4, middle: 0 };

/**
 * Yields a melody as an Ogg Opus stream, in fragments of whole pages of 0.4 s. The header declares `sampleRate` as
 * the original rate.
 */
export function* oggOpusFragments(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  const end = preSkip + Math.round(melody.seconds * opusRate);
  const packetAt = (index: number): Uint8Array =>
    opusPacket(melody.pitchAt(((index + 0.5) * packetSamples - preSkip) / opusRate));
  const packets = Math.ceil(end / packetSamples);
  yield Buffer.concat([
    page({ type: pageTypes.first, granule: 0, sequence: 0, packets: [identificationHeader(sampleRate)] }),
    page({ type: pageTypes.middle, granule: 0, sequence: 1, packets: [commentHeader()] }),
  ]);
  for (let start = 0, sequence = 2; start < packets; start += packetsPerPage, sequence++) {
    const count = Math.min(packetsPerPage, packets - start);
    const isLast = start + count === packets;
    yield page({
      type: isLast ? pageTypes.last : pageTypes.middle,
      granule: isLast ? end : (start + count) * packetSamples,
      sequence,
      packets: Array.from({ length: count }, (_, index) => packetAt(start + index)),
    });
  }
}

/** Returns the identification header (RFC 7845 5.1). */
function identificationHeader(sampleRate: number): Uint8Array {
  const head = Buffer.alloc(19);
  head.write('OpusHead', 0);
  head.writeUInt8(1, 8); // version
  head.writeUInt8(1, 9); // mono
  head.writeUInt16LE(preSkip, 10);
  head.writeUInt32LE(sampleRate, 12);
  head.writeInt16LE(outputGain, 16);
  return head;
}

/** Returns the comment header, with a vendor and no comments (RFC 7845 5.2). */
function commentHeader(): Uint8Array {
  const vendor = 'sandbox';
  const tags = Buffer.alloc(16 + vendor.length);
  tags.write('OpusTags', 0);
  tags.writeUInt32LE(vendor.length, 8);
  tags.write(vendor, 12);
  return tags;
}

interface Page {
  type: number;
  /** The number of samples up to the end of this page. */
  granule: number;
  sequence: number;
  /** Each packet is shorter than 255 bytes. */
  packets: readonly Uint8Array[];
}

/** Returns a page of the Ogg stream (RFC 3533 6). */
function page({ type, granule, sequence, packets }: Page): Uint8Array {
  const head = Buffer.alloc(27 + packets.length);
  head.write('OggS', 0);
  head.writeUInt8(type, 5);
  head.writeBigUInt64LE(BigInt(granule), 6);
  head.writeUInt32LE(streamSerial, 14);
  head.writeUInt32LE(sequence, 18);
  head.writeUInt8(packets.length, 26);
  packets.forEach((packet, index) => head.writeUInt8(packet.length, 27 + index));
  const bytes = Buffer.concat([head, ...packets]);
  bytes.writeUInt32LE(checksum(bytes), 22);
  return bytes;
}

/** Returns Ogg's CRC-32: polynomial 04c11db7, most significant bit first, nothing inverted. */
function checksum(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) crc = crc < 0 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  }
  return crc >>> 0;
}

/** The rate at which Opus always counts samples, in hertz. */
const opusRate = 48_000;
/** The number of samples in a packet, which lasts 20 ms. */
const packetSamples = 960;

/**
 * The first byte of each packet (RFC 6716 3.1), which specifies: CELT only, 4 kHz bandwidth, 20 ms, mono, one frame.
 */
const frameHeader = 0x98;
/** A packet of 20 ms of silence. */
const silence = Uint8Array.of(frameHeader, 0xff, 0xfe);

/**
 * For each band up to 4 kHz, the probability, in 256ths, that its energy is as expected. Taken from the table
 * `e_prob_model` in RFC 6716, for 20 ms without prediction from the previous frame (every second number).
 */
const energyProbabilities = [22, 63, 74, 84, 92, 103, 96, 96, 101, 107, 113, 118, 125];
/**
 * The minimum number of bits that must be left for a band's energy. With fewer bits, the decoder
 * expects a shorter code.
 */
const minEnergyBits = 15;
const maxFilterGain = 7;

/**
 * Returns a self-contained packet of 20 ms at a pitch in hertz (0 for silence). The packet has too few bits for the
 * spectrum's shape, so the decoder fills the bands with noise. The decoder's pitch filter (RFC 6716 4.3.7.1) turns the
 * noise into a tone.
 */
function opusPacket(pitch: number): Uint8Array {
  if (pitch === 0) return silence;
  const encoder = new RangeEncoder();
  encoder.bit(false, 15); // not silent
  writePitchFilter(encoder, Math.round(opusRate / pitch));
  encoder.bit(false, 3).bit(true, 3); // no transient; energies without prediction from the previous frame
  let usedBits = 0;
  for (const frequency of energyProbabilities) {
    usedBits = encoder.bits;
    encoder.symbol(0, frequency * 128, 32_768);
  }
  const size = Math.ceil((usedBits + minEnergyBits) / 8);
  return Uint8Array.of(frameHeader, ...encoder.finish(size));
}

/** Writes the pitch filter (RFC 6716 4.3.7.1). `period` is in samples, 15 to 1022. */
function writePitchFilter(encoder: RangeEncoder, period: number): void {
  const octave = Math.floor(Math.log2((period + 1) / 16));
  encoder.bit(true, 1).symbol(octave, octave + 1, 6);
  encoder.raw(period + 1 - 16 * 2 ** octave, 4 + octave).raw(maxFilterGain, 3);
  encoder.symbol(0, 2, 4); // the filter's narrowest form
}

/**
 * Writes range-coded symbols from the front of a packet, and raw bits from its back, as Opus does (RFC 6716 5.1). A
 * decoder that reads beyond the written data reads zeros.
 */
class RangeEncoder {
  #range = 2 ** 31;
  #low = 0;
  /** The last symbol, which a carry may still change, and the number of 255s that follow it. */
  #pendingByte = -1;
  #carrying = 0;
  #bytes: number[] = [];
  #shifts = 0;
  #raw = 0;
  #rawBits = 0;

  /** The number of bits that the decoder considers used (`ec_tell`). */
  get bits(): number {
    return 1 + this.#shifts * 8 + Math.clz32(this.#range) + this.#rawBits;
  }

  /** Writes a symbol that has the frequencies from `low` up to, but not including, `high`, out of `total`. */
  symbol(low: number, high: number, total: number): this {
    const step = Math.floor(this.#range / total);
    if (low > 0) this.#low += this.#range - step * (total - low);
    this.#range = low > 0 ? step * (high - low) : this.#range - step * (total - high);
    while (this.#range <= 2 ** 23) this.#shift();
    return this;
  }

  /** Writes a bit whose probability of being set is 1 in 2^`rarity`. */
  bit(isSet: boolean, rarity: number): this {
    const total = 2 ** rarity;
    return isSet ? this.symbol(total - 1, total, total) : this.symbol(0, total - 1, total);
  }

  /** Writes a value's low `bits` bits at the back. */
  raw(value: number, bits: number): this {
    this.#raw += value * 2 ** this.#rawBits;
    this.#rawBits += bits;
    return this;
  }

  /**
   * Ends the encoding, and returns the packet. `size` is the packet's length in bytes, and must be large enough for
   * `bits`.
   */
  finish(size: number): Uint8Array {
    this.#end();
    const packet = new Uint8Array(size);
    packet.set(this.#bytes);
    for (
      let at = size - 1, remaining = this.#raw;
      remaining > 0;
      at -= 1, remaining = Math.floor(remaining / 256)
    )
      packet.set([(packet[at] ?? 0) | (remaining % 256)], at);
    return packet;
  }

  /** Writes the fewest bits from which the decoder reads the same symbols, regardless of what follows. */
  #end(): void {
    let bits = Math.clz32(this.#range);
    let unit = 2 ** (31 - bits);
    if (Math.ceil(this.#low / unit) * unit + unit > this.#low + this.#range) {
      bits += 1;
      unit /= 2;
    }
    this.#low = Math.ceil(this.#low / unit) * unit;
    for (; bits > 0; bits -= 8) this.#shift();
    if (this.#pendingByte >= 0) this.#put(0);
  }

  #shift(): void {
    this.#put(Math.floor(this.#low / 2 ** 23));
    this.#low = (this.#low * 256) % 2 ** 31;
    this.#range *= 256;
    this.#shifts += 1;
  }

  #put(symbol: number): void {
    if (symbol === 255) {
      this.#carrying += 1;
      return;
    }
    const carry = symbol >> 8;
    if (this.#pendingByte >= 0) this.#bytes.push(this.#pendingByte + carry);
    for (; this.#carrying > 0; this.#carrying -= 1) this.#bytes.push((255 + carry) % 256);
    this.#pendingByte = symbol % 256;
  }
}
