/** A Layer III frame, as described by its header and side information. */
export interface Mp3Frame {
  bytes: number;
  sampleRate: number;
  samples: number;
  bitsPerSecond: number;
  channels: number;
  /** The audible frequency lines of each granule, with their signs. A silent granule has no lines. */
  granules: { line: number; negative: boolean }[][];
}

// The sample rates, indexed by the two version bits (ISO 11172-3 2.4.2.3 and 13818-3 2.4.2.3).
const SAMPLE_RATES: Record<number, number[]> = {
  0: [11_025, 12_000, 8000],
  2: [22_050, 24_000, 16_000],
  3: [44_100, 48_000, 32_000],
};
const KILOBITS_1 = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const KILOBITS_2 = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];

/** Reads a whole stream frame by frame. Throws if the stream has no frame or an incomplete frame. */
export function readMp3(stream: Uint8Array): Mp3Frame[] {
  const bytes = Buffer.from(stream);
  const frames: Mp3Frame[] = [];
  for (let at = 0; at < bytes.length;) {
    const frame = readFrame(bytes, at);
    if (at + frame.bytes > bytes.length) throw new Error(`the frame at ${at} is truncated`);
    frames.push(frame);
    at += frame.bytes;
  }
  return frames;
}

function readFrame(bytes: Buffer, at: number): Mp3Frame {
  const header = bytes.readUInt32BE(at);
  const field = (shift: number, mask: number): number => (header >>> shift) & mask;
  if (field(21, 0x7ff) !== 0x7ff || field(17, 3) !== 1 || field(16, 1) !== 1)
    throw new Error(`no frame at ${at}`);
  const isMpeg1 = field(19, 3) === 3;
  const sampleRate = SAMPLE_RATES[field(19, 3)]?.[field(10, 3)];
  const kilobits = (isMpeg1 ? KILOBITS_1 : KILOBITS_2)[field(12, 15)] ?? 0;
  if (sampleRate === undefined || kilobits === 0) throw new Error(`reserved values in the header at ${at}`);
  const bitsPerSecond = kilobits * 1000;
  const samples = isMpeg1 ? 1152 : 576;
  const size = Math.floor((samples * bitsPerSecond) / 8 / sampleRate) + field(9, 1);
  const channels = field(6, 3) === 3 ? 1 : 2;
  const granules = readGranules(bytes.subarray(at + 4, at + size), isMpeg1);
  return { bytes: size, sampleRate, samples, bitsPerSecond, channels, granules };
}

/** Reads the granules of a mono frame whose main data is in the frame, in the count1 region, coded by table B. */
function readGranules(body: Buffer, isMpeg1: boolean): Mp3Frame['granules'] {
  let at = 0;
  const take = (count: number): number => {
    let value = 0;
    for (let index = 0; index < count; index++, at++) {
      value = value * 2 + ((body.readUInt8(at >> 3) >> (7 - (at & 7))) & 1);
    }
    return value;
  };
  if (take(isMpeg1 ? 9 : 8) !== 0) throw new Error('main data begins in an earlier frame');
  take(isMpeg1 ? 5 + 4 : 1);
  const lengths = Array.from({ length: isMpeg1 ? 2 : 1 }, () => {
    const [length, bigValues] = [take(12), take(9)];
    take(8);
    const [scalefacCompress, windowSwitching] = [take(isMpeg1 ? 4 : 9), take(1)];
    take(isMpeg1 ? 22 + 2 : 22 + 1);
    if (bigValues + scalefacCompress + windowSwitching !== 0 || take(1) !== 1)
      throw new Error('unsupported granule');
    return length;
  });
  return lengths.map((length) => {
    const end = at + length;
    const lines: Mp3Frame['granules'][0] = [];
    for (let first = 0; at < end; first += 4) {
      const present = 15 - take(4);
      for (let index = 0; index < 4; index++) {
        if ((present >> (3 - index)) % 2 === 1) lines.push({ line: first + index, negative: take(1) === 1 });
      }
    }
    if (at !== end) throw new Error('the spectrum is longer than part2_3_length');
    return lines;
  });
}
