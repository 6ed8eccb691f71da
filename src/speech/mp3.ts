// Kilobits a second by the index in the header: MPEG 1, and MPEG 2 and 2.5, both layer III.
const bitRates = {
  mpeg1: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  mpeg2: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const sampleRates = [44_100, 48_000, 32_000];

interface Frame {
  /** Bytes, header included. */
  length: number;
  /** Where the tag of a header frame stands, counted from the frame's beginning. */
  tagAt: number;
}

/**
 * The audio frames of an MP3 alone: without ID3 tags and without the header frame (Xing, Info, VBRI) that counts
 * the frames of its own file only. Bytes of several can then be joined to one file that plays to its end. What is
 * not understood is left as it is.
 */
export function mp3Frames(file: Uint8Array): Uint8Array {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.length);
  const start = behindTags(bytes);
  const end =
    bytes.length - start >= 128 && bytes.toString('latin1', bytes.length - 128, bytes.length - 125) === 'TAG'
      ? 128
      : 0;
  const audio = bytes.subarray(start, bytes.length - end);
  const first = frameAt(audio);
  return first !== undefined && isHeaderFrame(audio, first) ? audio.subarray(first.length) : audio;
}

// ID3v2 stands before the audio; its length is four times seven bits.
function behindTags(bytes: Buffer): number {
  let at = 0;
  while (bytes.toString('latin1', at, at + 3) === 'ID3' && at + 10 <= bytes.length) {
    const size = [6, 7, 8, 9].reduce((sum, offset) => sum * 128 + ((bytes[at + offset] ?? 0) & 0x7f), 0);
    const footer = ((bytes[at + 5] ?? 0) & 0x10) === 0 ? 0 : 10;
    at += 10 + size + footer;
  }
  return Math.min(at, bytes.length);
}

function frameAt(bytes: Buffer): Frame | undefined {
  const [sync = 0, kind = 0, rates = 0, mode = 0] = bytes;
  if (sync !== 0xff || (kind & 0xe6) !== 0xe2) return undefined;
  const version = (kind >> 3) & 3;
  const bitRate = (version === 3 ? bitRates.mpeg1 : bitRates.mpeg2)[rates >> 4];
  const plainRate = sampleRates[(rates >> 2) & 3];
  if (version === 1 || !bitRate || plainRate === undefined) return undefined;
  const sampleRate = plainRate / (version === 3 ? 1 : version === 2 ? 2 : 4);
  const samples = version === 3 ? 144 : 72;
  const mono = mode >> 6 === 3;
  const sideInfo = version === 3 ? (mono ? 17 : 32) : mono ? 9 : 17;
  return {
    length: Math.floor((samples * bitRate * 1000) / sampleRate) + ((rates >> 1) & 1),
    tagAt: 4 + sideInfo,
  };
}

function isHeaderFrame(bytes: Buffer, { tagAt }: Frame): boolean {
  const tag = bytes.toString('latin1', tagAt, tagAt + 4);
  return tag === 'Xing' || tag === 'Info' || bytes.toString('latin1', 36, 40) === 'VBRI';
}
