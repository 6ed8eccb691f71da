import stringWidth from 'string-width';
import { head } from '../help/wrap.ts';

// Latin letters and the punctuation of English, each of one column. What is beyond needs a segmenter and the emoji of
// Unicode, which take longer to make than everything else that a short command does.
const narrow = /^[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2022\u2026]*$/;

/** How many columns of a terminal a text takes. */
export function widthOf(text: string): number {
  return narrow.test(text) ? text.length : stringWidth(text);
}

/** As much of a line as `width` columns hold; a cut shows as `…`. */
export function cutToWidth(line: string, width: number): string {
  return widthOf(line) <= width ? line : `${head(line, width - 1, widthOf)}…`;
}
