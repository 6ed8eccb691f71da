import { numberOf, viewOf } from './index-lines.ts';

/** The length of a line in a count, in bytes. */
export const countLineLength = 5;

/** Encodes a total, modulo 2 ** 20, as a line of a count: four letters, or four digits and signs in a correction. */
export function countLine(total: number, isCorrection = false): string {
  const first = isCorrection ? 0x20 : 0x40;
  return `${String.fromCharCode(...[0, 5, 10, 15].map((bits) => first | ((total >> bits) & 0x1f)))}\n`;
}

/** Whether lines of a count contain a correction. */
export function hasCorrection(lines: string): boolean {
  return /[ -?]\n/.test(lines);
}

/** Returns the total in the count's line at an offset; undefined if the line is damaged. */
export function totalAt(view: DataView, at: number): number | undefined {
  const word = view.getInt32(at, true);
  const first = word & 0xe0e0e0e0;
  return (first === 0x40404040 || first === 0x20202020) && view.getUint8(at + 4) === 0x0a
    ? numberOf(word)
    : undefined;
}

/** The lines of a count that were read so far. Torn and damaged lines are skipped. */
export class CountLines {
  inode: number | undefined;
  /** The sum of the totals, modulo 2 ** 20. */
  total = 0;
  /** The number of bytes added, without a torn last line. */
  length = 0;
  /** The last five bytes. */
  lastLine = '';
  #buffer = Buffer.alloc(0);

  clear(): void {
    this.total = this.length = 0;
    this.lastLine = '';
  }

  reserve(bytes: number): Buffer {
    return (this.#buffer = Buffer.allocUnsafe(bytes));
  }

  add(bytes: number): void {
    const view = viewOf(this.#buffer);
    let [at, total] = [0, this.total];
    for (let next = 0; at + countLineLength <= bytes; at = next) {
      const lineTotal = totalAt(view, at);
      next = lineTotal === undefined ? this.#buffer.indexOf('\n', at) + 1 : at + countLineLength;
      if (next === 0 || next > bytes) break;
      total += lineTotal ?? 0;
    }
    this.length += at;
    const end = this.#buffer.toString('latin1', Math.max(0, at - countLineLength), at);
    this.lastLine = (this.lastLine + end).slice(-countLineLength);
    this.total = total & 0xfffff;
  }
}
