// By name in lower case: those of HTML that stand for visible ASCII.
const named: Record<string, string> = Object.fromEntries(
  (
    'excl! quot" num# dollar$ percnt% amp& apos\' lpar( rpar) ast* midast* plus+ comma, period. sol/ colon: semi; ' +
    'lt< equals= gt> quest? commat@ lsqb[ lbrack[ bsol\\ rsqb] rbrack] hat^ lowbar_ underbar_ grave` ' +
    'lcub{ lbrace{ verbar| vert| rcub} rbrace}'
  )
    .split(' ')
    .map((entry) => [entry.slice(0, -1), entry.slice(-1)]),
);

// One character of visible ASCII, escaped as JSON, an address, HTML or XML has it; each of them once or several times. An
// escape of any other character is none: of `%257f` the percent sign is undone.
const hex = String.raw`(?:2[1-9a-f]|[3-6][\da-f]|7[\da-e])`;
const decimal = String.raw`(?:3[3-9]|[4-9]\d|1[01]\d|12[0-6])`;
const json = String.raw`\\+(?:u00${hex}|x${hex}|["'/])|\\{2,}`;
const percent = `%(?:25)*${hex}`;
const number = String.raw`#0*${decimal}(?!\d);?|#x0*${hex}(?![\da-f]);?`;
const entity = `&(?:amp;)*(?:${number}|(?:${Object.keys(named).join('|')});)`;
const escape = new RegExp(`${json}|${percent}|${entity}`, 'gi');

/** Where an escape stood: from `start` to `end` of the text, at `at` of the text without it, as one character. */
export interface Escape {
  start: number;
  end: number;
  at: number;
}

/**
 * The text with the escapes of visible ASCII undone: JSON's, percent-encoding, the entities of HTML. One inside
 * another of its own kind goes with it; of two kinds one level goes. `found` takes each in its order.
 */
export function withoutEscapes(text: string, found?: (escape: Escape) => void): string {
  if (!/[\\%&]/.test(text)) return text;
  let shorter = 0;
  return text.replace(escape, (match: string, start: number) => {
    const character = knownCharacter(match);
    if (found === undefined) return character;
    found({ start, end: start + match.length, at: start - shorter });
    shorter += match.length - 1;
    return character;
  });
}

// A text may be nothing but escapes, few of which differ.
const known = new Map<string, string>();
const mostKnown = 1000;

function knownCharacter(escape: string): string {
  let character = known.get(escape);
  if (character === undefined) {
    character = characterOf(escape);
    if (known.size < mostKnown && escape.length < 32) known.set(escape, character);
  }
  return character;
}

function characterOf(escape: string): string {
  const end = escape.at(-1) === ';' ? -1 : escape.length;
  const body = escape.slice(0, end);
  if (!escape.startsWith('&'))
    return /^\\+$|["'/]$/.test(body) ? body.slice(-1) : characterFor(body.slice(-2), 16);
  const entity = body.slice(Math.max(body.lastIndexOf('&'), body.lastIndexOf(';')) + 1);
  const [, digits, hexDigits, name] = /^(?:#(\d+)|#x([\da-f]+)|([a-z]+))$/i.exec(entity) ?? [];
  if (name !== undefined) return named[name.toLowerCase()] ?? escape;
  return hexDigits === undefined ? characterFor(digits ?? '', 10) : characterFor(hexDigits, 16);
}

function characterFor(digits: string, base: 10 | 16): string {
  return String.fromCharCode(Number.parseInt(digits, base));
}

/** A span of the text without escapes, as that of the text with them. `escapes` are in their order. */
export function withEscapes([from, to]: Span, escapes: readonly Escape[]): Span {
  return [sourceOf(from, escapes).start, sourceOf(to - 1, escapes).end];
}

/** From the first character up to the one after the last. */
export type Span = readonly [number, number];

function sourceOf(index: number, escapes: readonly Escape[]): { start: number; end: number } {
  let [low, high] = [0, escapes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((escapes[middle]?.at ?? 0) <= index) low = middle + 1;
    else high = middle;
  }
  const last = escapes[low - 1];
  if (last === undefined) return { start: index, end: index + 1 };
  if (last.at === index) return last;
  const start = last.end + index - last.at - 1;
  return { start, end: start + 1 };
}
