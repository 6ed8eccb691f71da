import type { Melody } from './melody.ts';
import { OPUS_RATE, opusPacket, PACKET_SAMPLES } from './opus.ts';

const PRE_SKIP = 312;
const PACKETS_PER_PAGE = 20;
/** What players are to add, in 1/256 dB: the packets are softer than the other formats. */
const OUTPUT_GAIN = 10 * 256;
const SERIAL = 1;
const PAGE = { first: 2, last: 4, middle: 0 };

/**
 * A melody as an Ogg Opus stream, in fragments of whole pages of 0.4 s. `sampleRate` is what the header names as the
 * rate of the original.
 */
export function* oggOpusFragments(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  const end = PRE_SKIP + Math.round(melody.seconds * OPUS_RATE);
  const packetAt = (index: number): Uint8Array =>
    opusPacket(melody.pitchAt(((index + 0.5) * PACKET_SAMPLES - PRE_SKIP) / OPUS_RATE));
  const packets = Math.ceil(end / PACKET_SAMPLES);
  yield Buffer.concat([
    page({ type: PAGE.first, granule: 0, sequence: 0, packets: [identification(sampleRate)] }),
    page({ type: PAGE.middle, granule: 0, sequence: 1, packets: [comments()] }),
  ]);
  for (let start = 0, sequence = 2; start < packets; start += PACKETS_PER_PAGE, sequence++) {
    const count = Math.min(PACKETS_PER_PAGE, packets - start);
    const isLast = start + count === packets;
    yield page({
      type: isLast ? PAGE.last : PAGE.middle,
      granule: isLast ? end : (start + count) * PACKET_SAMPLES,
      sequence,
      packets: Array.from({ length: count }, (_, index) => packetAt(start + index)),
    });
  }
}

/** RFC 7845 5.1. */
function identification(sampleRate: number): Uint8Array {
  const head = Buffer.alloc(19);
  head.write('OpusHead', 0);
  head.writeUInt8(1, 8); // version
  head.writeUInt8(1, 9); // mono
  head.writeUInt16LE(PRE_SKIP, 10);
  head.writeUInt32LE(sampleRate, 12);
  head.writeInt16LE(OUTPUT_GAIN, 16);
  return head;
}

/** RFC 7845 5.2: a vendor, and no comments. */
function comments(): Uint8Array {
  const vendor = 'sandbox';
  const tags = Buffer.alloc(16 + vendor.length);
  tags.write('OpusTags', 0);
  tags.writeUInt32LE(vendor.length, 8);
  tags.write(vendor, 12);
  return tags;
}

interface Page {
  type: number;
  /** Samples played when this page has been. */
  granule: number;
  sequence: number;
  /** Each shorter than 255 bytes. */
  packets: readonly Uint8Array[];
}

/** RFC 3533 6. */
function page({ type, granule, sequence, packets }: Page): Uint8Array {
  const head = Buffer.alloc(27 + packets.length);
  head.write('OggS', 0);
  head.writeUInt8(type, 5);
  head.writeBigUInt64LE(BigInt(granule), 6);
  head.writeUInt32LE(SERIAL, 14);
  head.writeUInt32LE(sequence, 18);
  head.writeUInt8(packets.length, 26);
  packets.forEach((packet, index) => head.writeUInt8(packet.length, 27 + index));
  const whole = Buffer.concat([head, ...packets]);
  whole.writeUInt32LE(checksum(whole), 22);
  return whole;
}

/** CRC-32 as Ogg has it: polynomial 04c11db7, most significant bit first, nothing inverted. */
function checksum(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) crc = crc < 0 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  }
  return crc >>> 0;
}
