import type { BitWriter } from './bit-writer.ts';
import type { Colour } from './scene.ts';

/**
 * The quantiser at which one coefficient step is exactly one step of the sample value, so that a flat block is
 * coded without error: for luma 16 * 16 * 2^(28 / 6 - 6) / 4 = 64 before the final shift by 6 (H.264 8.5.10).
 * Chroma DC coefficients weigh double (8.5.11), hence 6 less.
 */
export const LUMA_QP = 28;
/** `chroma_qp_index_offset` that goes with {@link LUMA_QP}. */
export const CHROMA_QP_OFFSET = -6;

/** `mb_type` of the first Intra_16x16 type in each kind of slice (H.264 tables 7-11 and 7-13). */
export const INTRA_16X16_IN_I = 1;
/** Like {@link INTRA_16X16_IN_I}, after the five inter types of a P slice. */
export const INTRA_16X16_IN_P = 6;

const LUMA_MODES = { above: 0, left: 1, none: 2 };
const CHROMA_MODES = { none: 0, left: 1, above: 2 };
const CHROMA_DC_CODED = 4;
const MID_GREY = 0x808080;

type Neighbour = keyof typeof LUMA_MODES;

/**
 * Writes one 16x16 block of a single colour: predicted from the neighbour that is nearest to it (or from mid
 * grey), corrected by one DC coefficient for each component. `left` and `above` are the colours of the coded blocks
 * there, undefined at the edge of the picture; both must be flat as well.
 */
export function writeFlatMacroblock(
  bits: BitWriter,
  firstType: number,
  colour: Colour,
  left: Colour | undefined,
  above: Colour | undefined,
): void {
  const from = nearest(colour, left, above);
  const predicted = (from === 'left' ? left : above) ?? MID_GREY;
  const luma = step(colour, predicted, 16);
  const cb = step(colour, predicted, 8);
  const cr = step(colour, predicted, 0);
  const chromaCoded = cb !== 0 || cr !== 0;
  bits.ue(firstType + LUMA_MODES[from] + (chromaCoded ? CHROMA_DC_CODED : 0));
  bits.ue(CHROMA_MODES[from]);
  bits.se(0); // mb_qp_delta
  writeSingleCoefficient(bits, luma, LUMA_TOKENS);
  if (!chromaCoded) return;
  writeSingleCoefficient(bits, cb, CHROMA_DC_TOKENS);
  writeSingleCoefficient(bits, cr, CHROMA_DC_TOKENS);
}

function nearest(colour: Colour, left: Colour | undefined, above: Colour | undefined): Neighbour {
  if (left === undefined) return above === undefined ? 'none' : 'above';
  if (above === undefined) return 'left';
  return distance(colour, above) < distance(colour, left) ? 'above' : 'left';
}

function distance(a: Colour, b: Colour): number {
  return Math.abs(step(a, b, 16)) + Math.abs(step(a, b, 8)) + Math.abs(step(a, b, 0));
}

/** How far one component, which begins at bit `shift`, is from that of another colour. */
function step(colour: Colour, from: Colour, shift: number): number {
  return ((colour >>> shift) & 0xff) - ((from >>> shift) & 0xff);
}

/** `coeff_token` for no coefficient, for a single one of +-1, and for a single larger one: [code, length]. */
interface Tokens {
  none: readonly [number, number];
  one: readonly [number, number];
  larger: readonly [number, number];
}

// H.264 table 9-5, columns 0 <= nC < 2 (no block ever has AC coefficients, so nC is always 0) and nC = -1.
const LUMA_TOKENS: Tokens = { none: [1, 1], one: [1, 2], larger: [5, 6] };
const CHROMA_DC_TOKENS: Tokens = { none: [1, 2], one: [1, 1], larger: [7, 6] };
const NO_ZEROS_BEFORE = 1; // total_zeros = 0, in tables 9-7 and 9-9 alike

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
  bits.bits(NO_ZEROS_BEFORE, 1);
}

/** The first level after no trailing ones, with suffixLength 0 (H.264 9.2.2.1); it cannot be +-1. */
function writeLevel(bits: BitWriter, level: number): void {
  const code = level > 0 ? 2 * level - 4 : -2 * level - 3;
  if (code < 14) bits.bits(1, code + 1);
  else if (code < 30) bits.bits(1, 15).bits(code - 14, 4);
  else bits.bits(1, 16).bits(code - 30, 12);
}
