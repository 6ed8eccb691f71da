import { BitWriter } from './bit-writer.ts';
import type { Melody } from './scene.ts';

/**
 * The header fields for an MPEG Layer III stream at a sample rate. The versions are MPEG 1 (ISO 11172-3), MPEG 2 (ISO
 * 13818-3), and MPEG 2.5 (half the sample rates of MPEG 2).
 */
interface Layout {
  versionBits: number;
  rateIndex: number;
  /** The number of granules per frame. A granule has 576 samples. */
  granules: number;
  bitRateIndex: number;
}

const bitRate = 64_000;
const samplesPerGranule = 576;
const fragmentSeconds = 0.4;

// The columns are the sample rate in hertz, version bits, rate index, granules, and bit rate index.
const layoutsByRate: ReadonlyMap<number, Layout> = new Map(
  (
    [
      [8000, 0b00, 2, 1, 8],
      [11_025, 0b00, 0, 1, 8],
      [12_000, 0b00, 1, 1, 8],
      [16_000, 0b10, 2, 1, 8],
      [22_050, 0b10, 0, 1, 8],
      [24_000, 0b10, 1, 1, 8],
      [32_000, 0b11, 2, 2, 5],
      [44_100, 0b11, 0, 2, 5],
      [48_000, 0b11, 1, 2, 5],
    ] as const
  ).map(([sampleRate, versionBits, rateIndex, granules, bitRateIndex]) => [
    sampleRate,
    { versionBits, rateIndex, granules, bitRateIndex },
  ]),
);

/**
 * Yields a melody as a mono MP3 stream at a constant 64 kbit/s without tags, in fragments of whole frames, about 0.4 s
 * each. Throws RangeError for a sample rate that MP3 does not support.
 */
export function* mp3Fragments(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  const perFragment = Math.max(1, Math.round((fragmentSeconds * sampleRate) / mp3FrameSamples(sampleRate)));
  let fragment: Uint8Array[] = [];
  for (const frame of mp3Frames(melody, sampleRate)) {
    fragment.push(frame);
    if (fragment.length < perFragment) continue;
    yield Buffer.concat(fragment);
    fragment = [];
  }
  if (fragment.length > 0) yield Buffer.concat(fragment);
}

/** Yields the frames of {@link mp3Fragments} one by one. Each frame is self-contained (no bit reservoir). */
export function* mp3Frames(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  const layout = layoutFor(sampleRate);
  const frameSamples = mp3FrameSamples(sampleRate);
  const frames = Math.ceil((melody.seconds * sampleRate) / frameSamples);
  const endOf = (frame: number): number =>
    Math.floor(((frame + 1) * frameSamples * bitRate) / 8 / sampleRate);
  for (let frame = 0; frame < frames; frame++) {
    const size = endOf(frame) - endOf(frame - 1);
    const hasPadding = isPadded(size, frameSamples, sampleRate);
    yield encodeFrame(layout, size, hasPadding, frameTones(melody, layout, sampleRate, frame));
  }
}

/** Returns the number of samples per frame at a sample rate. Throws RangeError for a rate that MP3 does not support. */
export function mp3FrameSamples(sampleRate: number): number {
  return layoutFor(sampleRate).granules * samplesPerGranule;
}

function layoutFor(sampleRate: number): Layout {
  const layout = layoutsByRate.get(sampleRate);
  if (layout === undefined) throw new RangeError(`MP3 has no sample rate of ${sampleRate} Hz`);
  return layout;
}

/**
 * Whether a frame is padded. If the bit rate does not result in a whole number of bytes per frame, some frames are
 * one byte longer.
 */
function isPadded(size: number, frameSamples: number, sampleRate: number): boolean {
  return size > Math.floor((frameSamples * bitRate) / 8 / sampleRate);
}

/** The frequency line that sounds in a granule, and its sign. */
interface Tone {
  line: number;
  isNegative: boolean;
}

/**
 * Returns the tone of each granule of a frame; undefined for silence. The windows of the granules overlap. A line that
 * sounds in every granule produces a pure tone of constant loudness if its sign is constant (even lines) or alternates
 * (odd lines). The tone's pitch is the line's lower edge.
 */
function frameTones(melody: Melody, layout: Layout, sampleRate: number, frame: number): (Tone | undefined)[] {
  return Array.from({ length: layout.granules }, (_, offset) => {
    const granule = frame * layout.granules + offset;
    const pitch = melody.pitchAt(((granule + 0.5) * samplesPerGranule) / sampleRate);
    const line = Math.round((pitch * 2 * samplesPerGranule) / sampleRate);
    return pitch === 0 ? undefined : { line, isNegative: line % 2 === 1 && granule % 2 === 1 };
  });
}

function encodeFrame(
  layout: Layout,
  size: number,
  hasPadding: boolean,
  granules: readonly (Tone | undefined)[],
): Uint8Array {
  const bits = new BitWriter();
  bits.bits(0x7ff, 11).bits(layout.versionBits, 2).bits(0b01, 2).bits(1, 1); // Layer III, no checksum
  bits
    .bits(layout.bitRateIndex, 4)
    .bits(layout.rateIndex, 2)
    .bits(hasPadding ? 1 : 0, 1)
    .bits(0, 1);
  bits.bits(0b11, 2).bits(0, 6); // mono
  bits.bits(0, layout.granules === 2 ? 18 : 9); // main_data_begin 0, private bits, scfsi
  for (const tone of granules) writeGranuleInfo(bits, layout, tone);
  for (const tone of granules) if (tone !== undefined) writeSpectrum(bits, tone);
  while (bits.bitLength < size * 8) bits.bits(0, Math.min(24, size * 8 - bits.bitLength));
  return bits.toBytes();
}

/** The loudness: 210 is full scale, and every four steps halve or double the amplitude. */
const globalGain = 199;

function writeGranuleInfo(bits: BitWriter, layout: Layout, tone: Tone | undefined): void {
  bits.bits(tone === undefined ? 0 : spectrumBits(tone), 12); // part2_3_length
  bits.bits(0, 9).bits(globalGain, 8); // no big_values
  bits.bits(0, layout.granules === 2 ? 4 : 9); // scalefac_compress: no scale factors are sent
  bits.bits(0, 1).bits(0, 15).bits(0, 7); // long window, tables and regions of the big values
  bits.bits(0, layout.granules === 2 ? 2 : 1).bits(1, 1); // preflag, scalefac_scale, count1 table B
}

/**
 * Writes the frequency lines in groups of four. Table B uses four inverted bits for each group, followed by a sign for
 * each nonzero value.
 */
function writeSpectrum(bits: BitWriter, { line, isNegative }: Tone): void {
  for (let first = 3; first < line; first += 4) bits.bits(0b1111, 4);
  bits.bits(0b1111 & ~(0b1000 >> (line % 4)), 4).bits(isNegative ? 1 : 0, 1);
}

function spectrumBits({ line }: Tone): number {
  return (Math.floor(line / 4) + 1) * 4 + 1;
}
