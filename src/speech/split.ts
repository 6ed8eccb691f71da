/** Something that can be spoken (specification 2.6): a letter, a digit, or a symbol that is read out. */
export const speakable = /[\p{L}\p{N}\p{Sc}\p{Sm}\p{Extended_Pictographic}]/u;

// The places at which a text may be cut, best first. Each pattern ends after the place. Closing quotes and brackets stay with
// their sentence, and so does the white space after it.
const closers = `["'”’»)\\]}）】》」』〉]*`;
const places: readonly RegExp[] = [
  /\r?\n[^\S\n]*\r?\n\s*/gu,
  /\r?\n\s*/gu,
  new RegExp(`[.!?…]+${closers}\\s+|[。！？｡．؟।]+${closers}\\s*`, 'gu'),
  new RegExp(`[,;:–—]${closers}\\s+|[，；：、､،]${closers}\\s*`, 'gu'),
  /\s+/gu,
];

// How much white space is looked at after a place.
const maxSpaces = 256;

/**
 * Cuts a text into pieces of at most `maxCharacters` code points, each at the last place that fits: the end of a
 * paragraph, a line, a sentence (also 。！？), a clause, a word; and only if there is none of these between two
 * characters as people see them. White space around a piece is left out, and so is a piece without anything that
 * can be spoken; every other character is in exactly one piece, in order.
 */
export function splitText(text: string, maxCharacters: number): string[] {
  return cutText(text, maxCharacters)
    .map((piece) => piece.trim())
    .filter((piece) => speakable.test(piece));
}

/** Cuts a text as {@link splitText} does, with nothing left out: the pieces joined are the text. */
export function cutText(text: string, maxCharacters: number): string[] {
  const pieces: string[] = [];
  for (let rest = text; rest !== '';) {
    const end = pieceEnd(rest, Math.max(1, maxCharacters));
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return pieces;
}

// Offsets are in UTF-16 code units, as slices are.
function pieceEnd(text: string, maxCharacters: number): number {
  const limit = offsetOf(text, maxCharacters);
  if (limit >= text.length) return text.length;
  for (const place of places) {
    const end = lastPlace(text, limit, place);
    if (end !== undefined) return end;
  }
  return graphemeEnd(text, limit);
}

// Behind the last place whose visible part is within the limit; the white space that belongs to it may stand out.
function lastPlace(text: string, limit: number, place: RegExp): number | undefined {
  let end: number | undefined;
  for (const match of text.slice(0, limit + maxSpaces).matchAll(place)) {
    const visible = match.index + match[0].trimEnd().length;
    if (visible > limit) break;
    if (text.slice(0, visible).trim() !== '') end = match.index + match[0].length;
  }
  return end;
}

/** The offset after a number of code points, or the text's length if it has fewer. */
function offsetOf(text: string, characters: number): number {
  if (text.length <= characters) return text.length;
  let offset = 0;
  for (let count = 0; count < characters && offset < text.length; count += 1) {
    offset += (text.codePointAt(offset) ?? 0) > 0xffff ? 2 : 1;
  }
  return offset;
}

// A family emoji or a letter with its accents is one character to a reader. One that alone is longer than a
// piece may be is cut between code points.
function graphemeEnd(text: string, limit: number): number {
  const window = text.slice(0, limit + 64);
  let end = 0;
  for (const { index } of new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(window)) {
    if (index > limit) break;
    end = index;
  }
  return end === 0 ? limit : end;
}
