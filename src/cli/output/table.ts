import stringWidth from 'string-width';
import { printableLine } from '../../printable.ts';

/** A table with a head; cells are made printable, columns padded, and no colour is used. */
export function table(head: string[], rows: string[][]): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => printableLine(cell, 200)));
  // Not spread into Math.max: a call takes some hundred thousand arguments, and a list may be longer.
  const widths = head.map((_, column) =>
    cells.reduce((widest, row) => Math.max(widest, stringWidth(row[column] ?? '')), 0),
  );
  const line = (row: string[]): string =>
    row.map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - stringWidth(cell))).join('  ');
  return cells.map((row) => line(row).trimEnd()).join('\n');
}
