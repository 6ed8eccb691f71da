import { BitWriter } from './bit-writer.ts';
import {
  CHROMA_QP_OFFSET,
  INTRA_16X16_IN_I,
  INTRA_16X16_IN_P,
  LUMA_QP,
  writeFlatMacroblock,
} from './macroblock.ts';

/** Side of a macroblock in pixels: pictures are coded in whole ones, and cropped. */
export const MACROBLOCK = 16;

/** `profile_idc` and its constraint flags for Constrained Baseline: what every player decodes. */
export const PROFILE = { idc: 66, constraints: 0b1100_0000 };

const NAL = { slice: 0x61, idrSlice: 0x65, sequenceParameters: 0x67, pictureParameters: 0x68 };
const SLICE_TYPE = { i: 7, p: 5 };
const FRAME_NUM_BITS = 4;

// H.264 table A-1: level_idc, macroblocks a second, macroblocks a picture. From 3.0, for its bit rate.
const LEVELS = [
  [30, 40_500, 1620],
  [31, 108_000, 3600],
  [32, 216_000, 5120],
  [40, 245_760, 8192],
  [50, 589_824, 22_080],
  [51, 983_040, 36_864],
  [52, 2_073_600, 36_864],
  [60, 4_177_920, 139_264],
] as const;

/** Pixels and pictures a second of one stream. */
export interface VideoFormat {
  width: number;
  height: number;
  fps: number;
}

/** The lowest `level_idc` that allows a format. Throws RangeError when none does. */
export function levelFor({ width, height, fps }: VideoFormat): number {
  const [columns, rows] = [Math.ceil(width / MACROBLOCK), Math.ceil(height / MACROBLOCK)];
  const blocks = columns * rows;
  const level = LEVELS.find(
    ([, perSecond, perPicture]) =>
      blocks <= perPicture && blocks * fps <= perSecond && Math.max(columns, rows) ** 2 <= 8 * perPicture,
  );
  if (level === undefined)
    throw new RangeError(`No H.264 level holds ${width}x${height} at ${fps} pictures/s`);
  return level[0];
}

/** The sequence parameter set as a NAL unit (H.264 7.3.2.1.1). */
export function sequenceParameterSet(format: VideoFormat): Uint8Array {
  const [columns, rows] = [Math.ceil(format.width / MACROBLOCK), Math.ceil(format.height / MACROBLOCK)];
  const bits = new BitWriter();
  bits.bits(PROFILE.idc, 8).bits(PROFILE.constraints, 8).bits(levelFor(format), 8);
  bits.ue(0); // its id
  bits.ue(FRAME_NUM_BITS - 4);
  bits.ue(2); // pic_order_cnt_type: shown in the order of coding
  bits.ue(1).bits(0, 1); // one reference frame, without gaps
  bits.ue(columns - 1).ue(rows - 1);
  bits.bits(0b11, 2); // frames only, direct_8x8_inference
  writeCropping(bits, columns * MACROBLOCK - format.width, rows * MACROBLOCK - format.height);
  bits.bits(1, 1);
  writeUsability(bits, format.fps);
  return nalUnit(NAL.sequenceParameters, bits);
}

function writeCropping(bits: BitWriter, right: number, bottom: number): void {
  if (right === 0 && bottom === 0) {
    bits.bits(0, 1);
    return;
  }
  bits.bits(1, 1);
  for (const offset of [0, right / 2, 0, bottom / 2]) bits.ue(offset);
}

/** VUI (H.264 annex E): colours, exact timing, and that no picture waits for another to be shown. */
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
    .bits(1, 1); // ticks: two a picture, fixed
  bits.bits(0b000, 3); // no HRD parameters of either kind, no pic_struct
  bits.bits(1, 1).bits(1, 1); // bitstream_restriction, motion vectors over the edges
  for (const limit of [0, 0, 10, 10, 0, 1]) bits.ue(limit); // ... no reordering, one frame buffered
}

/** The picture parameter set as a NAL unit (H.264 7.3.2.2): CAVLC, one slice group, deblocking under control. */
export function pictureParameterSet(): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(0).bits(0b00, 2).ue(0).ue(0).ue(0).bits(0b000, 3);
  bits
    .se(LUMA_QP - 26)
    .se(0)
    .se(CHROMA_QP_OFFSET);
  bits.bits(0b100, 3);
  return nalUnit(NAL.pictureParameters, bits);
}

/** A picture that needs no other. `ordinal` counts such pictures: two in a row must differ in `idr_pic_id`. */
export function encodeIdr(picture: Uint32Array, columns: number, ordinal: number): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(SLICE_TYPE.i).ue(0).bits(0, FRAME_NUM_BITS);
  bits.ue(ordinal % 2).bits(0b00, 2);
  writeSliceQuality(bits);
  for (let index = 0; index < picture.length; index++) {
    writeBlock(bits, INTRA_16X16_IN_I, picture, columns, index);
  }
  return nalUnit(NAL.idrSlice, bits);
}

/** A picture as the blocks that differ from the previous one. `distance` counts the pictures since the last IDR. */
export function encodeDifference(
  picture: Uint32Array,
  previous: Uint32Array,
  columns: number,
  distance: number,
): Uint8Array {
  const bits = new BitWriter();
  bits.ue(0).ue(SLICE_TYPE.p).ue(0).bits(distance, FRAME_NUM_BITS);
  bits.bits(0b000, 3); // default reference list and marking
  writeSliceQuality(bits);
  let skipped = 0;
  for (let index = 0; index < picture.length; index++) {
    if (picture[index] === previous[index]) {
      skipped++;
    } else {
      bits.ue(skipped);
      skipped = 0;
      writeBlock(bits, INTRA_16X16_IN_P, picture, columns, index);
    }
  }
  if (skipped > 0) bits.ue(skipped);
  return nalUnit(NAL.slice, bits);
}

/** Without the deblocking filter blocks stay flat, which the prediction relies on. */
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

/** Ends the payload and makes it a NAL unit, in which no start code can appear by chance (H.264 7.4.1). */
function nalUnit(header: number, bits: BitWriter): Uint8Array {
  const payload = bits.bits(1, 1).align().toBytes();
  const escaped = new Uint8Array(1 + payload.length + Math.ceil(payload.length / 2));
  escaped[0] = header;
  let length = 1;
  let zeros = 0;
  for (const byte of payload) {
    if (zeros >= 2 && byte <= 3) {
      escaped[length++] = 3;
      zeros = 0;
    }
    escaped[length++] = byte;
    zeros = byte === 0 ? zeros + 1 : 0;
  }
  return escaped.slice(0, length);
}
