import { BitWriter } from './bit-writer.ts';
import type { Colour } from './scene.ts';

/**
 * The quantiser at which one coefficient step is exactly one step of the sample value, so that a flat block is coded
 * without error. For luma, a step is 16 * 16 * 2^(28 / 6 - 6) / 4 = 64 before the final shift by 6 (H.264 8.5.10).
 * Chroma DC coefficients weigh twice as much (8.5.11), so their quantiser is 6 lower.
 */
const lumaQp = 28;
/** The `chroma_qp_index_offset` that matches {@link lumaQp}. */
const chromaQpOffset = -6;

/** The first `mb_type` of Intra_16x16 in an I slice (H.264 table 7-11). */
const intra16x16InI = 1;
/** The first `mb_type` of Intra_16x16 in a P slice, after its five inter types (H.264 table 7-13). */
const intra16x16InP = 6;

const lumaModes = { above: 0, left: 1, none: 2 };
const chromaModes = { none: 0, left: 1, above: 2 };
const chromaDcCoded = 4;
const midGrey = 0x808080;

type Neighbour = keyof typeof lumaModes;

/**
 * Writes one 16x16 block of a single colour, predicted from the nearest neighbour (or from mid grey) and corrected by
 * one DC coefficient for each component. `left` and `above` are the colours of the coded neighbours, undefined at the
 * picture's edge. Both neighbours must also be flat.
 */
function writeFlatMacroblock(
  bits: BitWriter,
  firstType: number,
  colour: Colour,
  left: Colour | undefined,
  above: Colour | undefined,
): void {
  const neighbour = nearestNeighbour(colour, left, above);
  const prediction = (neighbour === 'left' ? left : above) ?? midGrey;
  const luma = difference(colour, prediction, 16);
  const cb = difference(colour, prediction, 8);
  const cr = difference(colour, prediction, 0);
  const hasChroma = cb !== 0 || cr !== 0;
  bits.ue(firstType + lumaModes[neighbour] + (hasChroma ? chromaDcCoded : 0));
  bits.ue(chromaModes[neighbour]);
  bits.se(0); // mb_qp_delta
  writeSingleCoefficient(bits, luma, lumaTokens);
  if (!hasChroma) return;
  writeSingleCoefficient(bits, cb, chromaDcTokens);
  writeSingleCoefficient(bits, cr, chromaDcTokens);
}

function nearestNeighbour(colour: Colour, left: Colour | undefined, above: Colour | undefined): Neighbour {
  if (left === undefined) return above === undefined ? 'none' : 'above';
  if (above === undefined) return 'left';
  return colourDistance(colour, above) < colourDistance(colour, left) ? 'above' : 'left';
}

function colourDistance(a: Colour, b: Colour): number {
  return Math.abs(difference(a, b, 16)) + Math.abs(difference(a, b, 8)) + Math.abs(difference(a, b, 0));
}

/** Returns the difference between two colours in the component that begins at bit `shift`. */
function difference(colour: Colour, other: Colour, shift: number): number {
  return ((colour >>> shift) & 0xff) - ((other >>> shift) & 0xff);
}

/** `coeff_token` as [code, length]: for no coefficient, for one coefficient of +-1, and for one larger coefficient. */
interface Tokens {
  none: readonly [number, number];
  one: readonly [number, number];
  larger: readonly [number, number];
}

// H.264 table 9-5, columns 0 <= nC < 2 (no block ever has AC coefficients, so nC is always 0) and nC = -1.
const lumaTokens: Tokens = { none: [1, 1], one: [1, 2], larger: [5, 6] };
const chromaDcTokens: Tokens = { none: [1, 2], one: [1, 1], larger: [7, 6] };
const noZerosBefore = 1; // total_zeros = 0, in tables 9-7 and 9-9 alike

function writeSingleCoefficient(bits: BitWriter, level: number, tokens: Tokens): void {
  if (level === 0) {
    bits.bits(...tokens.none);
    return;
  }
  if (Math.abs(level) === 1) {
    bits.bits(...tokens.one).bits(level < 0 ? 1 : 0, 1);
  } else {
    bits.bits(...tokens.larger);
    writeLevel(bits, level);
  }
  bits.bits(noZerosBefore, 1);
}

/** Writes the first level if there are no trailing ones, with suffixLength 0 (H.264 9.2.2.1). The level is not +-1. */
function writeLevel(bits: BitWriter, level: number): void {
  const code = level > 0 ? 2 * level - 4 : -2 * level - 3;
  if (code < 14) bits.bits(1, code + 1);
  else if (code < 30) bits.bits(1, 15).bits(code - 14, 4);
  else bits.bits(1, 16).bits(code - 30, 12);
}

/** The side of a macroblock, in pixels. Pictures are coded in whole macroblocks, and then cropped. */
export const macroblockSize = 16;

/** `profile_idc` and its constraint flags for Constrained Baseline, which every player decodes. */
const baselineProfile = { idc: 66, constraints: 0b1100_0000 };

const nalHeaders = { slice: 0x61, idrSlice: 0x65, sequenceParameters: 0x67, pictureParameters: 0x68 };
const sliceTypes = { i: 7, p: 5 };
const frameNumBits = 4;

// H.264 table A-1: level_idc, macroblocks per second, macroblocks per picture. Starts at level 3.0, because the bit
// rate of lower levels is too low.
const formatLevels = [
  [30, 40_500, 1620],
  [31, 108_000, 3600],
  [32, 216_000, 5120],
  [40, 245_760, 8192],
  [50, 589_824, 22_080],
  [51, 983_040, 36_864],
  [52, 2_073_600, 36_864],
  [60, 4_177_920, 139_264],
] as const;

/** A stream's size in pixels and frame rate. */
interface VideoFormat {
  width: number;
  height: number;
  fps: number;
}

/** Returns the lowest `level_idc` that allows a format. Throws RangeError if no level does. */
function levelFor({ width, height, fps }: VideoFormat): number {
  const [columns, rows] = [Math.ceil(width / macroblockSize), Math.ceil(height / macroblockSize)];
  const blocks = columns * rows;
  const level = formatLevels.find(
    ([, perSecond, perPicture]) =>
      blocks <= perPicture && blocks * fps <= perSecond && Math.max(columns, rows) ** 2 <= 8 * perPicture,
  );
  if (level === undefined)
    throw new RangeError(`No H.264 level allows ${width}x${height} at ${fps} pictures/s`);
  return level[0];
}

/** Returns the sequence parameter set as a NAL unit (H.264 7.3.2.1.1). */
export function sequenceParameterSet(format: VideoFormat): Uint8Array {
  const [columns, rows] = [
    Math.ceil(format.width / macroblockSize),
    Math.ceil(format.height / macroblockSize),
  ];
  const bits = new BitWriter();
  bits.bits(baselineProfile.idc, 8).bits(baselineProfile.constraints, 8).bits(levelFor(format), 8);
  bits.ue(0); // the parameter set's id
  bits.ue(frameNumBits - 4);
  bits.ue(2); // pic_order_cnt_type: displayed in coding order
  bits.ue(1).bits(0, 1); // one reference frame, without gaps
  bits.ue(columns - 1).ue(rows - 1);
  bits.bits(0b11, 2); // frames only, direct_8x8_inference
  writeCropping(bits, columns * macroblockSize - format.width, rows * macroblockSize - format.height);
  bits.bits(1, 1);
  writeUsability(bits, format.fps);
  return nalUnit(nalHeaders.sequenceParameters, bits);
}

function writeCropping(bits: BitWriter, right: number, bottom: number): void {
  if (right === 0 && bottom === 0) {
    bits.bits(0, 1);
    return;
  }
  bits.bits(1, 1);
  for (const offset of [0, right / 2, 0, bottom / 2]) bits.ue(offset);
}

/**
 * Writes the VUI (H.264 annex E), which specifies the colours, the exact timing, and that pictures are displayed
 * in coding order.
 */
function writeUsability(bits: BitWriter, fps: number): void {
  bits.bits(0b00, 2); // no aspect ratio (square pixels), no overscan
  bits.bits(1, 1).bits(5, 3).bits(0, 1); // video_signal_type: unspecified format, studio range
  bits.bits(1, 1).bits(1, 8).bits(1, 8).bits(1, 8); // BT.709 primaries, transfer, matrix
  bits.bits(0, 1); // chroma location
  bits
    .bits(1, 1)
    .bits(0, 16)
    .bits(1, 16)
    .bits(0, 16)
    .bits(fps * 2, 16)
    .bits(1, 1); // ticks: two per picture, fixed
  bits.bits(0b000, 3); // no HRD parameters of either kind, no pic_struct
  bits.bits(1, 1).bits(1, 1); // bitstream_restriction, motion vectors over the edges
  for (const limit of [0, 0, 10, 10, 0, 1]) bits.ue(limit); // ... no reordering, one frame buffered
}

/**
 * Returns the picture parameter set as a NAL unit (H.264 7.3.2.2): CAVLC, one slice group, deblocking
 * controlled by the slices.
 */
export function pictureParameterSet(): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(0).bits(0b00, 2).ue(0).ue(0).ue(0).bits(0b000, 3);
  bits
    .se(lumaQp - 26)
    .se(0)
    .se(chromaQpOffset);
  bits.bits(0b100, 3);
  return nalUnit(nalHeaders.pictureParameters, bits);
}

/**
 * Encodes a picture independently of other pictures. `ordinal` counts these pictures, because consecutive IDR pictures
 * must differ in `idr_pic_id`.
 */
export function encodeIdr(picture: Uint32Array, columns: number, ordinal: number): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(sliceTypes.i).ue(0).bits(0, frameNumBits);
  bits.ue(ordinal % 2).bits(0b00, 2);
  writeSliceQuality(bits);
  for (let index = 0; index < picture.length; index++) {
    writeBlock(bits, intra16x16InI, picture, columns, index);
  }
  return nalUnit(nalHeaders.idrSlice, bits);
}

/**
 * Encodes only the blocks in which a picture differs from the previous picture. `distance` is the number of pictures
 * since the last IDR.
 */
export function encodeDifference(
  picture: Uint32Array,
  previous: Uint32Array,
  columns: number,
  distance: number,
): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(sliceTypes.p).ue(0).bits(distance, frameNumBits);
  bits.bits(0b000, 3); // default reference list and marking
  writeSliceQuality(bits);
  let skipCount = 0;
  for (let index = 0; index < picture.length; index++) {
    if (picture[index] === previous[index]) {
      skipCount++;
    } else {
      bits.ue(skipCount);
      skipCount = 0;
      writeBlock(bits, intra16x16InP, picture, columns, index);
    }
  }
  if (skipCount > 0) bits.ue(skipCount);
  return nalUnit(nalHeaders.slice, bits);
}

/** Turns off the deblocking filter, so that blocks remain flat, as the prediction requires. */
function writeSliceQuality(bits: BitWriter): void {
  bits.se(0).ue(1);
}

function writeBlock(
  bits: BitWriter,
  type: number,
  picture: Uint32Array,
  columns: number,
  index: number,
): void {
  const left = index % columns === 0 ? undefined : picture[index - 1];
  const above = index < columns ? undefined : picture[index - columns];
  writeFlatMacroblock(bits, type, picture[index] ?? 0, left, above);
}

/** Ends the payload, and converts it to a NAL unit in which no start code can appear by chance (H.264 7.4.1). */
function nalUnit(header: number, bits: BitWriter): Uint8Array {
  const payload = bits.bits(1, 1).align().toBytes();
  const unit = new Uint8Array(1 + payload.length + Math.ceil(payload.length / 2));
  unit[0] = header;
  let length = 1;
  let zeros = 0;
  for (const byte of payload) {
    if (zeros >= 2 && byte <= 3) {
      unit[length++] = 3;
      zeros = 0;
    }
    unit[length++] = byte;
    zeros = byte === 0 ? zeros + 1 : 0;
  }
  return unit.slice(0, length);
}
