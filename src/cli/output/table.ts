import { wrap, cutToWidth, widthOf } from '../help/wrap.ts';
import { printableLine } from '../../printable.ts';

/** The gap between two columns, in characters. */
const gap = 2;
/** The maximum length of a cell, in characters. */
const maxCellWidth = 200;
const empty = '-';
/** Words that are longer than this number of columns may be broken. */
const maxWordWidth = 24;

/**
 * Formats a table with a header: makes cells printable and pads columns, without colours. If the table is wider than
 * `width` terminal columns, narrows its widest columns and wraps their cells. If that would break words, formats each
 * row as a record: the first cell, and below it the other cells with their headers.
 */
export function table(head: string[], rows: string[][], width = Number.POSITIVE_INFINITY): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => printableLine(cell, maxCellWidth)));
  // Does not spread the rows into Math.max, because a list may have more entries than a call accepts arguments.
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

// Narrows the columns, and returns whether they fit without breaking a word; a path may be broken.
function narrow(widths: number[], cells: readonly string[][], maxWidth: number): boolean {
  const excess = (): number => widths.reduce((sum, width) => sum + width, 0) - maxWidth;
  if (excess() <= 0) return true;
  const minWidths = widths.map((_, column) =>
    cells
      .flatMap((row) => row[column]?.split(/[ /]/) ?? [])
      .reduce((widest, word) => Math.max(widest, Math.min(maxWordWidth, widthOf(word))), 1),
  );
  while (excess() > 0) {
    const narrowable = widths.map((width, column) => (width > (minWidths[column] ?? 0) ? width : 0));
    const widest = narrowable.reduce((max, width) => Math.max(max, width), 0);
    if (widest === 0) return false;
    widths[narrowable.lastIndexOf(widest)] = widest - 1;
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
  return [title, ...lines].map((line) => wrap(line, width, '    ', widthOf)).join('\n');
}

function linesOf(row: readonly string[], widths: readonly number[]): string[] {
  const columns = row.map((cell, column) => wrap(cell, widths[column] ?? 0, '', widthOf).split('\n'));
  const height = columns.reduce((max, lines) => Math.max(max, lines.length), 1);
  return Array.from({ length: height }, (_, line) =>
    columns.map((lines, column) => pad(lines[line] ?? '', widths[column] ?? 0)).join(' '.repeat(gap)),
  ).map((line) => line.trimEnd());
}

function pad(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)));
}

/** A column of a table that is fitted to a width. */
export interface Column<Row> {
  head: string;
  cell: (row: Row) => string | undefined;
  /** The minimum width; if undefined, the column is never truncated. */
  minWidth?: number;
  /** Columns with the highest rank are omitted first. If undefined, the column is never omitted. */
  rank?: number;
}

interface MeasuredColumn {
  head: string;
  cells: string[];
  width: number;
  minWidth?: number;
  rank?: number;
  isEmpty: boolean;
}

/**
 * Formats a table of at most `width` terminal columns: truncates cells, then omits columns, empty ones first. If that
 * is not enough, falls back to {@link table}, which does not break words. Without a width, shows every column.
 */
export function fittedTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | undefined,
): string {
  const all = columns.map((column) => measureColumn(column, rows));
  let visible = all;
  if (width !== undefined) {
    while (totalMinWidth(visible) > width) {
      const next = columnToOmit(visible);
      if (next === undefined) break;
      visible = visible.filter((column) => column !== next);
    }
    if (totalMinWidth(visible) > width)
      return table(
        all.map(({ head }) => head),
        rows.map((_, row) => all.map(({ cells }) => cells[row] ?? '')),
        width,
      );
    shrink(visible, width);
  }
  const lines = rows.map((_, row) =>
    visible.map(({ cells, width: room }) => cutToWidth(cells[row] ?? '', room)),
  );
  return table(
    visible.map(({ head, width: room }) => cutToWidth(head, room)),
    lines,
  );
}

function measureColumn<Row>(
  { head, cell, minWidth, rank }: Column<Row>,
  rows: readonly Row[],
): MeasuredColumn {
  const cells = rows.map((row) => printableLine(cell(row) || empty, maxCellWidth));
  const width = cells.reduce((widest, text) => Math.max(widest, widthOf(text)), widthOf(head));
  return { head, cells, width, minWidth, rank, isEmpty: cells.every((text) => text === empty) };
}

function totalMinWidth(columns: readonly MeasuredColumn[]): number {
  return columns.reduce((sum, { width, minWidth = width }) => sum + gap + Math.min(width, minWidth), -gap);
}

function columnToOmit(columns: readonly MeasuredColumn[]): MeasuredColumn | undefined {
  const ranked = columns.filter(({ rank }) => rank !== undefined);
  const candidates = ranked.some(({ isEmpty }) => isEmpty) ? ranked.filter(({ isEmpty }) => isEmpty) : ranked;
  return candidates.reduce<MeasuredColumn | undefined>(
    (chosen, column) => (chosen === undefined || (column.rank ?? 0) > (chosen.rank ?? 0) ? column : chosen),
    undefined,
  );
}

// Truncates the widest column first, so that a wide column does not cause the truncation of a narrow one.
function shrink(columns: readonly MeasuredColumn[], width: number): void {
  let excess = columns.reduce((sum, column) => sum + gap + column.width, -gap) - width;
  while (excess > 0) {
    const shrinkable = columns.filter(
      ({ width: columnWidth, minWidth }) => minWidth !== undefined && columnWidth > minWidth,
    );
    const [widest] = shrinkable.sort((one, other) => other.width - one.width);
    if (widest === undefined) return;
    widest.width -= 1;
    excess -= 1;
  }
}
