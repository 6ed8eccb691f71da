import stringWidth from 'string-width';

// Latin letters and the punctuation of English, each of one column. What is beyond needs a segmenter and the emoji of
// Unicode, which take longer to make than everything else that a short command does.
const narrow = /^[ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2015\u2018-\u201f\u2022\u2026]*$/;

/** How many columns of a terminal a text takes. */
export function widthOf(text: string): number {
  return narrow.test(text) ? text.length : stringWidth(text);
}

let segmenter: Intl.Segmenter | undefined;

function* graphemes(text: string): Iterable<string> {
  if (narrow.test(text)) return yield* text;
  segmenter ??= new Intl.Segmenter(undefined, { granularity: 'grapheme' });
  for (const { segment } of segmenter.segment(text)) yield segment;
}

/** As much of a line as `width` columns hold; a cut shows as `…`. */
export function cutToWidth(line: string, width: number): string {
  return widthOf(line) <= width ? line : `${head(line, width - 1)}…`;
}

/** A line as several of at most `width` columns each, broken at blanks where there are any. */
export function wrapped(line: string, width: number): string[] {
  const lines: string[] = [];
  let rest = line;
  while (widthOf(rest) > width) {
    const part = head(rest, width) || firstGrapheme(rest);
    const blank = rest[part.length] === ' ' ? part.length : part.lastIndexOf(' ');
    const isIndent = part.slice(0, blank).trim() === '';
    const end = blank > 0 && !isIndent ? blank : part.length;
    lines.push(rest.slice(0, end));
    rest = rest.slice(end).replace(/^ /, '');
  }
  return [...lines, rest];
}

function head(line: string, width: number): string {
  let kept = '';
  let taken = 0;
  for (const grapheme of graphemes(line)) {
    taken += widthOf(grapheme);
    if (taken > width) break;
    kept += grapheme;
  }
  return kept;
}

// Wider than the terminal: shown all the same.
function firstGrapheme(line: string): string {
  for (const grapheme of graphemes(line)) return grapheme;
  return '';
}
