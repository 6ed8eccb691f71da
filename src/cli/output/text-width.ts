import stringWidth from 'string-width';

/** How many columns of a terminal a text takes. */
export const widthOf: (text: string) => number = stringWidth;

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** As much of a line as `width` columns hold; a cut shows as `…`. */
export function cutToWidth(line: string, width: number): string {
  return stringWidth(line) <= width ? line : `${head(line, width - 1)}…`;
}

/** A line as several of at most `width` columns each, broken at blanks where there are any. */
export function wrapped(line: string, width: number): string[] {
  const lines: string[] = [];
  let rest = line;
  while (stringWidth(rest) > width) {
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
  for (const { segment } of graphemes.segment(line)) {
    taken += stringWidth(segment);
    if (taken > width) break;
    kept += segment;
  }
  return kept;
}

// Wider than the terminal: shown all the same.
function firstGrapheme(line: string): string {
  for (const { segment } of graphemes.segment(line)) return segment;
  return '';
}
