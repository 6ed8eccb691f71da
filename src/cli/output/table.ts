import { wrapped } from '../help/wrap.ts';
import { cutToWidth, widthOf } from './text-width.ts';
import { printableLine } from '../../printable.ts';

/** Columns between two columns. */
const gap = 2;
/** No more characters of a cell are shown. */
const longestCell = 200;

/**
 * A table with a head; cells are made printable, columns padded, and no colour is used. If it is wider than `width`
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

/** A column of a table that is made to fit. */
export interface Column<Row> {
  head: string;
  cell: (row: Row) => string | undefined;
  /** How narrow it may become; one without is shown whole. */
  least?: number;
  /** Those with the highest are left out first; a column without is never left out. */
  rank?: number;
}

const empty = '-';

interface Measured {
  head: string;
  cells: string[];
  width: number;
  least?: number;
  rank?: number;
  isEmpty: boolean;
}

/**
 * A table of at most `width` columns of a terminal: cells are cut, and then columns left out, those that are empty first.
 * Without a width every column is shown.
 */
export function fittedTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | undefined,
): string {
  let shown = columns.map((column) => measured(column, rows));
  if (width !== undefined) {
    while (minWidth(shown) > width) {
      const next = leftOutNext(shown);
      if (next === undefined) break;
      shown = shown.filter((column) => column !== next);
    }
    shrink(shown, width);
  }
  const lines = rows.map((_, row) =>
    shown.map(({ cells, width: room }) => cutToWidth(cells[row] ?? '', room)),
  );
  return table(
    shown.map(({ head, width: room }) => cutToWidth(head, room)),
    lines,
  );
}

function measured<Row>({ head, cell, least, rank }: Column<Row>, rows: readonly Row[]): Measured {
  const cells = rows.map((row) => printableLine(cell(row) || empty, longestCell));
  const width = cells.reduce((widest, text) => Math.max(widest, widthOf(text)), widthOf(head));
  return { head, cells, width, least, rank, isEmpty: cells.every((text) => text === empty) };
}

function minWidth(columns: readonly Measured[]): number {
  return columns.reduce((sum, { width, least = width }) => sum + gap + Math.min(width, least), -gap);
}

function leftOutNext(columns: readonly Measured[]): Measured | undefined {
  const ranked = columns.filter(({ rank }) => rank !== undefined);
  const candidates = ranked.some(({ isEmpty }) => isEmpty) ? ranked.filter(({ isEmpty }) => isEmpty) : ranked;
  return candidates.reduce<Measured | undefined>(
    (last, column) => (last === undefined || (column.rank ?? 0) > (last.rank ?? 0) ? column : last),
    undefined,
  );
}

// A column at a time, the widest first: a short one is not cut for the sake of a long one.
function shrink(columns: readonly Measured[], width: number): void {
  let excess = columns.reduce((sum, column) => sum + gap + column.width, -gap) - width;
  while (excess > 0) {
    const open = columns.filter(({ width: own, least }) => least !== undefined && own > least);
    const [widest] = open.sort((one, other) => other.width - one.width);
    if (widest === undefined) return;
    widest.width -= 1;
    excess -= 1;
  }
}
