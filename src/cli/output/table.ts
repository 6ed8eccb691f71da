import { wrapped, cutToWidth, widthOf } from '../help/wrap.ts';
import { printableLine } from '../../printable.ts';

/** The gap between two columns. */
const gap = 2;
/** The maximum number of characters of a cell. */
const maxCellWidth = 200;
/** The text of an empty cell. */
const empty = '-';
/** A word longer than this may be broken. */
const maxWordWidth = 24;

/**
 * Formats a table with a header: makes cells printable, pads columns, and uses no colour. If the table is wider than
 * `width` columns of a terminal, narrows its widest columns and wraps their cells. If that would break words, formats
 * each row as a record: the first cell, and below it the other cells with their headers.
 */
export function table(head: string[], rows: string[][], width = Number.POSITIVE_INFINITY): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => printableLine(cell, maxCellWidth)));
  // Not spread into Math.max: a list may have more entries than a call accepts arguments.
  const widths = head.map((_, column) =>
    cells.reduce((widest, row) => Math.max(widest, widthOf(row[column] ?? '')), 0),
  );
  const isNarrowed = narrow(widths, cells, width - gap * (head.length - 1));
  if (!isNarrowed)
    return cells
      .slice(1)
      .map((row) => recordOf(head, row, width))
      .join('\n');
  return cells.flatMap((row) => linesOf(row, widths)).join('\n');
}

// Returns whether the columns fit without breaking a word; a path may be broken.
function narrow(widths: number[], cells: readonly string[][], room: number): boolean {
  const excess = (): number => widths.reduce((sum, width) => sum + width, 0) - room;
  if (excess() <= 0) return true;
  const least = widths.map((_, column) =>
    cells
      .flatMap((row) => row[column]?.split(/[ /]/) ?? [])
      .reduce((widest, word) => Math.max(widest, Math.min(maxWordWidth, widthOf(word))), 1),
  );
  while (excess() > 0) {
    const open = widths.map((width, column) => (width > (least[column] ?? 0) ? width : 0));
    const widest = open.reduce((most, width) => Math.max(most, width), 0);
    if (widest === 0) return false;
    widths[open.lastIndexOf(widest)] = widest - 1;
  }
  return true;
}

// Puts as many headers and values on a line as fit.
function recordOf(head: readonly string[], [title = '', ...cells]: readonly string[], width: number): string {
  const lines: string[] = [];
  for (const [index, cell] of cells.entries()) {
    if (cell === empty || cell === '') continue;
    const part = `${head[index + 1] ?? ''} ${cell}`;
    const longer = `${lines.at(-1) ?? ''} · ${part}`;
    if (lines.length > 0 && widthOf(longer) <= width) lines[lines.length - 1] = longer;
    else lines.push(`  ${part}`);
  }
  return [title, ...lines].map((line) => wrapped(line, width, '    ', widthOf)).join('\n');
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

/** A column of a table that fits a width. */
export interface Column<Row> {
  head: string;
  cell: (row: Row) => string | undefined;
  /** The minimum width; without it the column is never cut. */
  least?: number;
  /** Columns with the highest number are left out first. Without it the column is never left out. */
  rank?: number;
}

interface Measured {
  head: string;
  cells: string[];
  width: number;
  least?: number;
  rank?: number;
  isEmpty: boolean;
}

/**
 * Formats a table of at most `width` columns of a terminal: cuts cells, then leaves columns out, empty ones first. If
 * that is not enough, falls back to {@link table}, which breaks no words. Without a width, shows every column.
 */
export function fittedTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | undefined,
): string {
  const all = columns.map((column) => measured(column, rows));
  let shown = all;
  if (width !== undefined) {
    while (minWidth(shown) > width) {
      const next = leftOutNext(shown);
      if (next === undefined) break;
      shown = shown.filter((column) => column !== next);
    }
    if (minWidth(shown) > width)
      return table(
        all.map(({ head }) => head),
        rows.map((_, row) => all.map(({ cells }) => cells[row] ?? '')),
        width,
      );
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
  const cells = rows.map((row) => printableLine(cell(row) || empty, maxCellWidth));
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

// Cuts the widest column first, so that a narrow column is not cut because of a wide one.
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
