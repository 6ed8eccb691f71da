import { printableLine } from '../../printable.ts';
import { wrapped } from '../help/wrap.ts';
import { widthOf } from './text-width.ts';

/** Columns between two columns. */
export const gap = 2;
/** No more characters of a cell are shown. */
export const longestCell = 200;

/**
 * A table with a head; cells are made printable, columns padded, and no colour is used. Where it is wider than `width`
 * columns of a terminal, its widest columns are made narrower, and what is in them is wrapped.
 */
export function table(head: string[], rows: string[][], width = Number.POSITIVE_INFINITY): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => printableLine(cell, longestCell)));
  // Not spread into Math.max: a call takes some hundred thousand arguments, and a list may be longer.
  const widths = head.map((_, column) =>
    cells.reduce((widest, row) => Math.max(widest, widthOf(row[column] ?? '')), 0),
  );
  narrow(widths, width - gap * (head.length - 1));
  return cells.flatMap((row) => linesOf(row, widths)).join('\n');
}

function narrow(widths: number[], room: number): void {
  let excess = widths.reduce((sum, width) => sum + width, 0) - room;
  for (; excess > 0; excess -= 1) {
    const widest = widths.reduce((most, width) => Math.max(most, width), 0);
    if (widest <= 1) return;
    widths[widths.lastIndexOf(widest)] = widest - 1;
  }
}

function linesOf(row: readonly string[], widths: readonly number[]): string[] {
  const columns = row.map((cell, column) => wrapped(cell, widths[column] ?? 0, '', widthOf).split('\n'));
  const height = columns.reduce((most, lines) => Math.max(most, lines.length), 1);
  return Array.from({ length: height }, (_, line) =>
    columns.map((lines, column) => padded(lines[line] ?? '', widths[column] ?? 0)).join(' '.repeat(gap)),
  ).map((line) => line.trimEnd());
}

function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)));
}
