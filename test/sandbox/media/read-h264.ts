/** The sequence and picture parameters that the slices of a sandbox stream depend on. */
export interface Parameters {
  profile: number;
  constraints: number;
  level: number;
  columns: number;
  rows: number;
  width: number;
  height: number;
  picturesPerSecond: number;
  frameNumBits: number;
  qp: number;
  chromaQpOffset: number;
}

/** A decoded picture: Y, Cb and Cr of each macroblock. Every macroblock is flat. */
export type Picture = (readonly [number, number, number])[];

/** A decoded slice with its header values. */
export interface Slice {
  isIdr: boolean;
  frameNum: number;
  idrId: number | undefined;
  coded: number;
  picture: Picture;
}

class BitReader {
  #at = 0;
  readonly #bytes: Buffer;

  /** Reads a NAL unit without its header byte and emulation prevention bytes. */
  constructor(nal: Buffer) {
    const bytes: number[] = [];
    for (let index = 1; index < nal.length; index++) {
      const [two, one, byte] = [nal[index - 2], nal[index - 1], nal[index] ?? 0];
      const afterZeros = index > 2 && two === 0 && one === 0;
      if (afterZeros && byte < 3) throw new Error(`a start code inside a NAL unit, at ${index}`);
      if (!(afterZeros && byte === 3)) bytes.push(byte);
    }
    this.#bytes = Buffer.from(bytes);
  }

  u(count: number): number {
    let value = 0;
    for (let index = 0; index < count; index++) {
      const byte = this.#bytes[this.#at >> 3];
      if (byte === undefined) throw new Error('read past the end of a NAL unit');
      value = value * 2 + ((byte >> (7 - (this.#at++ & 7))) & 1);
    }
    return value;
  }

  zeros(): number {
    let count = 0;
    while (this.u(1) === 0) count++;
    return count;
  }

  ue(): number {
    const length = this.zeros();
    return 2 ** length - 1 + this.u(length);
  }

  se(): number {
    const code = this.ue();
    return code % 2 === 1 ? (code + 1) / 2 : -code / 2;
  }

  /** Whether only the stop bit and the zeros that follow it remain (`more_rbsp_data` is false). */
  atEnd(): boolean {
    const left = this.#bytes.length * 8 - this.#at;
    if (left < 1 || left > 8) return false;
    return ((this.#bytes.at(-1) ?? 0) & (2 ** left - 1)) === 2 ** (left - 1);
  }
}

/** Reads the parameter sets (H.264 7.3.2.1 and 7.3.2.2). Throws on anything beyond Constrained Baseline. */
export function readParameters(sps: Buffer, pps: Buffer): Parameters {
  expectValue('SPS header', sps[0], 0x67);
  expectValue('PPS header', pps[0], 0x68);
  return { ...readSequence(new BitReader(sps)), ...readPictureParameters(new BitReader(pps)) };
}

function readSequence(r: BitReader): Omit<Parameters, 'qp' | 'chromaQpOffset'> {
  const [profile, constraints, level] = [r.u(8), r.u(8), r.u(8)];
  expectValue('SPS id', r.ue(), 0);
  const frameNumBits = r.ue() + 4;
  expectValue('pic_order_cnt_type', r.ue(), 2);
  expectValue('max_num_ref_frames', r.ue(), 1);
  expectValue('gaps_in_frame_num', r.u(1), 0);
  const [columns, rows] = [r.ue() + 1, r.ue() + 1];
  expectValue('frame_mbs_only and direct_8x8', r.u(2), 3);
  const [left, right, top, bottom] = r.u(1) === 1 ? [r.ue(), r.ue(), r.ue(), r.ue()] : [0, 0, 0, 0];
  const width = columns * 16 - 2 * (left + right);
  const height = rows * 16 - 2 * (top + bottom);
  expectValue('VUI present', r.u(1), 1);
  const picturesPerSecond = readUsability(r);
  return { profile, constraints, level, columns, rows, width, height, picturesPerSecond, frameNumBits };
}

function readUsability(r: BitReader): number {
  expectValue('aspect ratio and overscan', r.u(2), 0);
  if (r.u(1) === 1) {
    r.u(4);
    if (r.u(1) === 1) r.u(24);
  }
  expectValue('chroma location', r.u(1), 0);
  expectValue('timing', r.u(1), 1);
  const [ticks, scale] = [r.u(32), r.u(32)];
  expectValue('fixed frame rate', r.u(1), 1);
  expectValue('HRD and pic_struct', r.u(3), 0);
  expectValue('bitstream_restriction', r.u(1), 1);
  r.u(1);
  const limits = Array.from({ length: 6 }, () => r.ue());
  expectValue('max_num_reorder_frames', limits[4], 0);
  expectValue('end of the SPS', r.atEnd() ? 1 : 0, 1);
  return scale / (2 * ticks);
}

function readPictureParameters(r: BitReader): Pick<Parameters, 'qp' | 'chromaQpOffset'> {
  expectValue('PPS and SPS ids', r.ue() + r.ue(), 0);
  expectValue('entropy coding and field order', r.u(2), 0);
  expectValue('slice groups and references', r.ue() + r.ue() + r.ue(), 0);
  expectValue('weighted prediction', r.u(3), 0);
  const qp = 26 + r.se();
  r.se();
  const chromaQpOffset = r.se();
  expectValue('deblocking control only', r.u(3), 0b100);
  expectValue('end of the PPS', r.atEnd() ? 1 : 0, 1);
  return { qp, chromaQpOffset };
}

/** Decodes one slice that covers a whole picture of flat macroblocks (H.264 7.3.3 to 7.3.5, 8.3.3, 8.5). */
export function decodeSlice(nal: Buffer, parameters: Parameters, previous: Picture): Slice {
  const r = new BitReader(nal);
  const isIdr = nal[0] === 0x65;
  if (!isIdr) expectValue('slice header byte', nal[0], 0x61);
  expectValue('first_mb_in_slice', r.ue(), 0);
  expectValue('slice_type', r.ue(), isIdr ? 7 : 5);
  expectValue('PPS id', r.ue(), 0);
  const frameNum = r.u(parameters.frameNumBits);
  const idrId = isIdr ? r.ue() : undefined;
  expectValue('reference lists and marking', r.u(isIdr ? 2 : 3), 0);
  const qp = parameters.qp + r.se();
  expectValue('disable_deblocking_filter_idc', r.ue(), 1);
  const { picture, coded } = decodeBlocks(r, { ...parameters, qp }, isIdr ? undefined : previous);
  expectValue('macroblocks', picture.length, parameters.columns * parameters.rows);
  return { isIdr, frameNum, idrId, coded, picture };
}

function decodeBlocks(r: BitReader, parameters: Parameters, previous: Picture | undefined) {
  const picture: Picture = [];
  let coded = 0;
  while (!r.atEnd()) {
    if (previous !== undefined) {
      picture.push(...previous.slice(picture.length, picture.length + r.ue()));
      if (r.atEnd()) break;
    }
    picture.push(decodeBlock(r, parameters, picture, previous === undefined ? 1 : 6));
    coded++;
  }
  return { picture, coded };
}

function decodeBlock(r: BitReader, parameters: Parameters, picture: Picture, firstType: number): Picture[0] {
  const left = picture.length % parameters.columns === 0 ? undefined : picture.at(-1);
  const above = picture[picture.length - parameters.columns];
  const type = r.ue() - firstType;
  expectValue('Intra_16x16 without AC coefficients', type >= 0 && type < 8 ? 1 : 0, 1);
  const luma = predictor([above, left, undefined][type % 4], type % 4 === 2, left ?? above);
  const chromaMode = r.ue();
  const chroma = predictor([undefined, left, above][chromaMode], chromaMode === 0, left ?? above);
  expectValue('mb_qp_delta', r.se(), 0);
  const y = lumaStep(readCoefficient(r, 'luma'), parameters.qp);
  const chromaQp = parameters.qp + parameters.chromaQpOffset;
  const [cb, cr] = type < 4 ? [0, 0] : [readCoefficient(r, 'chroma'), readCoefficient(r, 'chroma')];
  const block = [
    luma[0] + y,
    chroma[1] + chromaStep(cb, chromaQp),
    chroma[2] + chromaStep(cr, chromaQp),
  ] as const;
  if (block.some((value) => value < 0 || value > 255)) throw new Error(`clipped: ${block.join()}`);
  return block;
}

/**
 * Returns a block's prediction. Supports DC prediction only for a block without neighbours, which is a flat mid grey.
 */
function predictor(from: Picture[0] | undefined, isDc: boolean, any: Picture[0] | undefined): Picture[0] {
  if (isDc && any === undefined) return [128, 128, 128];
  if (isDc || from === undefined) throw new Error('predicted from a block that is not there');
  return from;
}

const NORM_ADJUST = [10, 11, 13, 14, 16, 18];

function lumaStep(level: number, qp: number): number {
  const scaled = level * 16 * (NORM_ADJUST[qp % 6] ?? 0);
  const dc =
    qp >= 36
      ? scaled * 2 ** (Math.floor(qp / 6) - 6)
      : (scaled + 2 ** (5 - Math.floor(qp / 6))) >> (6 - Math.floor(qp / 6));
  return (dc + 32) >> 6;
}

/** Dequantises a chroma level. Supports only QPs below 30, at which chroma and luma have the same QP. */
function chromaStep(level: number, qp: number): number {
  if (qp >= 30) throw new Error('the table for chroma QPs is not here');
  const dc = (level * 16 * (NORM_ADJUST[qp % 6] ?? 0) * 2 ** Math.floor(qp / 6)) >> 5;
  return (dc + 32) >> 6;
}

/** Reads a block's only coefficient (DC), or returns 0. The neighbours must have no coefficients (H.264 9.2). */
function readCoefficient(r: BitReader, plane: 'luma' | 'chroma'): number {
  const zeros = r.zeros();
  const token = zeros > 3 ? `${zeros}` : `${zeros}${zeros === 3 ? r.u(2) : ''}`;
  const meaning = {
    luma: { '0': 'none', '1': 'one', '31': 'larger' },
    chroma: { '0': 'one', '1': 'none', '33': 'larger' },
  };
  const count = (meaning[plane] as Record<string, string>)[token];
  if (count === undefined) throw new Error(`coeff_token ${token} has more than one coefficient`);
  if (count === 'none') return 0;
  const level = count === 'one' ? 1 - 2 * r.u(1) : readLevel(r);
  expectValue('total_zeros', r.u(1), 1);
  return level;
}

function readLevel(r: BitReader): number {
  const prefix = r.zeros();
  const suffix = prefix < 14 ? 0 : r.u(prefix === 14 ? 4 : prefix - 3);
  const code = Math.min(15, prefix) + suffix + (prefix >= 15 ? 15 : 0) + 2;
  return code % 2 === 0 ? (code + 2) / 2 : (-code - 1) / 2;
}

function expectValue(what: string, actual: number | undefined, expected: number): void {
  if (actual !== expected) throw new Error(`${what}: ${String(actual)} instead of ${expected}`);
}
