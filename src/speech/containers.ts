import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { canonicalJson, type JsonObject } from '../json.ts';

/** Converts the next piece to the bytes to write to the joined output. Must be called in order. */
export type Joiner = (piece: Uint8Array, isLast: boolean) => Uint8Array;

/** Returns the function that joins the pieces of one output; undefined for an unknown format. */
export function joinerFor(wireFormat: string): Joiner | undefined {
  if (wireFormat === 'mp3') return mp3Frames;
  if (wireFormat === 'ogg_opus') return oggJoiner();
  return wireFormat === 'pcm' ? (piece) => piece : undefined;
}

/** Returns the path of the file in which an order's pieces are joined. The name is unique to the order. */
export function joinedPart(folder: string, bodies: readonly JsonObject[]): string {
  return join(folder, `joined-${hashOfPieces(bodies).slice(0, 16)}.part`);
}

/** Returns a hash that identifies the pieces of long text. */
export function hashOfPieces(bodies: readonly JsonObject[]): string {
  return createHash('sha256')
    .update(canonicalJson([...bodies]))
    .digest('hex');
}

// Layer III bit rates in kbit/s, by the index in the frame header: for MPEG 1, and for MPEG 2 and 2.5.
const bitRates = {
  mpeg1: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  mpeg2: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const sampleRates = [44_100, 48_000, 32_000];

interface Frame {
  /** Length in bytes, including the header. */
  length: number;
  /** Offset of a header frame's tag from the start of the frame, in bytes. */
  tagAt: number;
}

/**
 * Returns the audio frames of an MP3, without ID3 tags and without the header frame (Xing, Info, VBRI). A header frame
 * describes only its own file. The frames of several files can be joined into one file that plays to its end. Returns
 * the file unchanged if no frames would remain (for example, if a tag declares too many bytes).
 */
export function mp3Frames(file: Uint8Array): Uint8Array {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.length);
  const start = audioStart(bytes);
  const tagBytes =
    bytes.length - start >= 128 && bytes.toString('latin1', bytes.length - 128, bytes.length - 125) === 'TAG'
      ? 128
      : 0;
  const audio = bytes.subarray(start, bytes.length - tagBytes);
  const firstFrame = frameAt(audio);
  const frames =
    firstFrame !== undefined && isHeaderFrame(audio, firstFrame) ? audio.subarray(firstFrame.length) : audio;
  return frames.length > 0 ? frames : bytes;
}

// Returns the offset of the audio, after any ID3v2 tags. A tag's length is stored in four bytes of seven bits each.
function audioStart(bytes: Buffer): number {
  let at = 0;
  while (bytes.toString('latin1', at, at + 3) === 'ID3' && at + 10 <= bytes.length) {
    const size = [6, 7, 8, 9].reduce((sum, offset) => sum * 128 + ((bytes[at + offset] ?? 0) & 0x7f), 0);
    const footer = ((bytes[at + 5] ?? 0) & 0x10) === 0 ? 0 : 10;
    at += 10 + size + footer;
  }
  return at;
}

function frameAt(bytes: Buffer): Frame | undefined {
  const [sync = 0, kind = 0, rates = 0, mode = 0] = bytes;
  if (sync !== 0xff || (kind & 0xe6) !== 0xe2) return undefined;
  const version = (kind >> 3) & 3;
  const bitRate = (version === 3 ? bitRates.mpeg1 : bitRates.mpeg2)[rates >> 4];
  const baseRate = sampleRates[(rates >> 2) & 3];
  if (version === 1 || !bitRate || baseRate === undefined) return undefined;
  const sampleRate = baseRate / (version === 3 ? 1 : version === 2 ? 2 : 4);
  const samples = version === 3 ? 144 : 72;
  const isMono = mode >> 6 === 3;
  const sideInfo = version === 3 ? (isMono ? 17 : 32) : isMono ? 9 : 17;
  return {
    length: Math.floor((samples * bitRate * 1000) / sampleRate) + ((rates >> 1) & 1),
    tagAt: 4 + sideInfo,
  };
}

function isHeaderFrame(bytes: Buffer, { tagAt }: Frame): boolean {
  const tag = bytes.toString('latin1', tagAt, tagAt + 4);
  return tag === 'Xing' || tag === 'Info' || bytes.toString('latin1', 36, 40) === 'VBRI';
}

const headBytes = 27;
const [beginFlag, endFlag] = [2, 4];
const noPacketEnds = 0xffff_ffff_ffff_ffffn;

/**
 * Returns a function that joins Ogg Opus files, given in order, into one logical stream (RFC 3533, RFC 7845). The
 * function keeps the first file's headers, and renumbers and retimes the pages. If the files were simply concatenated,
 * players would display the length of the last file. Unknown data is not changed.
 */
export function oggJoiner(): (file: Uint8Array, isLast: boolean) => Uint8Array {
  let sequence = 0;
  let serial: number | undefined;
  /** The number of samples (48 kHz) up to the end of the previous file. */
  let played = 0n;
  return (file, isLast) => {
    const pages = pagesOf(Buffer.from(file));
    const headers = pages === undefined ? 0 : headerCount(pages);
    if (pages === undefined || headers === 0) return file;
    serial ??= pages[0]?.readUInt32LE(14) ?? 0;
    const start = played;
    const outputPages = sequence === 0 ? pages : pages.slice(headers);
    for (const page of outputPages) {
      const granule = page.readBigUInt64LE(6);
      if (granule !== noPacketEnds) played = start + granule;
      const ends = isLast && page === outputPages.at(-1);
      page[5] =
        ((page[5] ?? 0) & ~(beginFlag | endFlag)) | (sequence === 0 ? beginFlag : 0) | (ends ? endFlag : 0);
      if (granule !== noPacketEnds) page.writeBigUInt64LE(played, 6);
      page.writeUInt32LE(serial, 14);
      page.writeUInt32LE(sequence++, 18);
      page.writeUInt32LE(0, 22);
      page.writeUInt32LE(checksum(page), 22);
    }
    return Buffer.concat(outputPages);
  };
}

function pagesOf(file: Buffer): Buffer[] | undefined {
  const pages: Buffer[] = [];
  for (let at = 0; at < file.length;) {
    if (file.toString('latin1', at, at + 4) !== 'OggS' || at + headBytes > file.length) return undefined;
    const segments = file.subarray(at + headBytes, at + headBytes + (file[at + 26] ?? 0));
    const nextOffset = at + headBytes + segments.length + segments.reduce((sum, size) => sum + size, 0);
    if (nextOffset > file.length) return undefined;
    // Copy the page, because it is changed in place.
    pages.push(Buffer.from(file.subarray(at, nextOffset)));
    at = nextOffset;
  }
  return pages;
}

// Counts the page of OpusHead and the pages up to the end of the comment packet; 0 if this is not Opus.
function headerCount(pages: readonly Buffer[]): number {
  const [first] = pages;
  if (first?.toString('latin1', headBytes + 1, headBytes + 9) !== 'OpusHead') return 0;
  const last = pages.findIndex((page, index) => index > 0 && endsPacket(page));
  return last === -1 ? 0 : last + 1;
}

function endsPacket(page: Buffer): boolean {
  return page.subarray(headBytes, headBytes + (page[26] ?? 0)).some((size) => size < 255);
}

const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte << 24;
  for (let bit = 0; bit < 8; bit += 1) value = (value << 1) ^ (value < 0 ? 0x04c1_1db7 : 0);
  return value;
});

function checksum(page: Buffer): number {
  let sum = 0;
  for (const byte of page) sum = (sum << 8) ^ (crcTable[(sum >>> 24) ^ byte] ?? 0);
  return sum >>> 0;
}

/** Size of {@link wavHeader}, in bytes. */
export const wavHeaderBytes = 44;

const unknownLength = 0xffff_ffff;

/**
 * Returns the header of a WAV file with signed 16-bit mono PCM. If the length is unknown (a stream), both size fields
 * are 0xFFFFFFFF, which players interpret as "to the end".
 * @param sampleRate in hertz
 * @param audioBytes length of the PCM after the header, in bytes
 */
export function wavHeader(sampleRate: number, audioBytes?: number): Buffer {
  const header = Buffer.alloc(wavHeaderBytes);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(sizeField(audioBytes, wavHeaderBytes - 8), 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(sampleRate, 24);
  header.writeUInt32LE(sampleRate * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(sizeField(audioBytes, 0), 40);
  return header;
}

function sizeField(audioBytes: number | undefined, extraBytes: number): number {
  return audioBytes === undefined ? unknownLength : Math.min(audioBytes + extraBytes, unknownLength);
}
