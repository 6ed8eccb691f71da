/** Matches a character that can be spoken (specification 2.6): a letter, a digit, or a symbol that is read aloud. */
export const speakable = /[\p{L}\p{N}\p{Sc}\p{Sm}\p{Extended_Pictographic}]/u;

// Matches the places at which text may be cut, best first. Each match ends at the cut. Closing quotes, closing brackets
// and the white space after them belong to the sentence.
const closers = `["'”’»)\\]}）】》」』〉]*`;
const cutPatterns: readonly RegExp[] = [
  /\r?\n[^\S\n]*\r?\n\s*/gu,
  /\r?\n\s*/gu,
  new RegExp(`[.!?…]+${closers}\\s+|[。！？｡．؟।]+${closers}\\s*`, 'gu'),
  new RegExp(`[,;:–—]${closers}\\s+|[，；：、､،]${closers}\\s*`, 'gu'),
  /\s+/gu,
];

// Maximum amount of white space after a cut, in UTF-16 code units.
const maxSpaces = 256;

/**
 * Cuts text into pieces of at most `maxCharacters` code points. Each cut is at the last end of a paragraph that fits,
 * else of a line, a sentence, a clause or a word. A sentence ends at one of `。！？` or their like, or at one of `.!?…`
 * before white space. If none fits, the cut is between two graphemes. Omits white space around a piece, and pieces that
 * cannot be spoken. Every other character is in exactly one piece, in order.
 */
export function splitText(text: string, maxCharacters: number): string[] {
  return cutText(text, maxCharacters)
    .map((piece) => piece.trim())
    .filter((piece) => speakable.test(piece));
}

/** Cuts text like {@link splitText}, but omits nothing: the joined pieces are the text. */
export function cutText(text: string, maxCharacters: number): string[] {
  const pieces: string[] = [];
  for (let remaining = text; remaining !== '';) {
    const end = pieceEnd(remaining, Math.max(1, maxCharacters));
    pieces.push(remaining.slice(0, end));
    remaining = remaining.slice(end);
  }
  return pieces;
}

// Returns the end of the first piece, as an offset in UTF-16 code units.
function pieceEnd(text: string, maxCharacters: number): number {
  const limit = offsetOf(text, maxCharacters);
  if (limit >= text.length) return text.length;
  for (const pattern of cutPatterns) {
    const end = lastPlace(text, limit, pattern);
    if (end !== undefined) return end;
  }
  return graphemeEnd(text, limit);
}

// Returns the end of the last match whose visible part is within the limit. White space after that part may exceed the
// limit.
function lastPlace(text: string, limit: number, pattern: RegExp): number | undefined {
  let end: number | undefined;
  for (const match of text.slice(0, limit + maxSpaces).matchAll(pattern)) {
    const visibleEnd = match.index + match[0].trimEnd().length;
    if (visibleEnd > limit) break;
    if (text.slice(0, visibleEnd).trim() !== '') end = match.index + match[0].length;
  }
  return end;
}

/** Returns the offset after the given number of code points, or the length of the text if it is shorter. */
function offsetOf(text: string, characters: number): number {
  if (text.length <= characters) return text.length;
  let offset = 0;
  for (let count = 0; count < characters && offset < text.length; count += 1) {
    offset += (text.codePointAt(offset) ?? 0) > 0xffff ? 2 : 1;
  }
  return offset;
}

// Returns the end of the last grapheme within the limit. A family emoji or a letter with accents is one grapheme. A
// grapheme longer than a piece is cut between code points.
function graphemeEnd(text: string, limit: number): number {
  const window = text.slice(0, limit + 64);
  let end = 0;
  for (const { index } of new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(window)) {
    if (index > limit) break;
    end = index;
  }
  return end === 0 ? limit : end;
}
