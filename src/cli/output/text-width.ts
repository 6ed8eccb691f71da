import stringWidth from 'string-width';
import { head } from '../help/wrap.ts';

// Latin letters and English punctuation, one column each. Other characters need a segmenter and Unicode's emoji, which
// take longer to create than a short command needs.
const narrow = /^[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2022\u2026]*$/;

/** Returns the width of a text in columns of a terminal. */
export function widthOf(text: string): number {
  return narrow.test(text) ? text.length : stringWidth(text);
}

/** Cuts a line to `width` columns; a cut shows as `…`. */
export function cutToWidth(line: string, width: number): string {
  return widthOf(line) <= width ? line : `${head(line, width - 1, widthOf)}…`;
}
