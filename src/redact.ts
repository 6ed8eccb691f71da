/** The text that replaces a secret. */
export const redacted = '[redacted]';

// A shorter secret is a word of its own in too many texts: it is replaced only as a whole word.
const shortest = 8;

// Tokens in the plural are counted: `X-Control-Require-Usage-Tokens-Return`.
const secretHeader = /auth|key|token(?!s)|cookie|secret|signature|credential/i;
// Header lines, JSON members and curl arguments alike: a name, a colon or equals sign, the value up to its end.
const headerInText =
  /\b((?:proxy-)?authorization|x-api-key|x-goog-api-key|api-key|(?:set-)?cookie)(\\?["']?\s*[:=]\s*\\?["']?)[^"'\r\n\\]+/gi;
const queryInText =
  /([?&;]|\\u0026|%26)((?:[\w.-]*(?:signature|token|secret|credential|password|api[-_]?key)|access|sig|sign|key|auth)=)[^&\s"'<>#\\;]+/gi;
const userInfoInText = /\b([a-z][a-z\d+.-]{0,20}:\/\/)[^/\s:@"'<>]*:[^/\s@"'<>]*@/gi;
// A gateway quotes a key it refuses with its middle starred out.
const maskedKey = /\bsk-\w{1,16}\*{2,}\w{0,16}/g;

/**
 * A function that replaces each secret by `[redacted]`, in every spelling it may come back in: as it is or
 * without its `sk-`; hexadecimal; Base64 and Base64url at each of the three alignments; and any characters of these
 * escaped as in JSON, an address or HTML, several times and one way inside another. Everything else stays, so a
 * recorded answer can still be read.
 */
export function secretRedactor(secrets: readonly string[]): (text: string) => string {
  const given = secrets.filter((secret) => secret !== '');
  if (given.length === 0) return (text) => text;
  const pattern = patternOf(given);
  return (text) => hidden(text, pattern);
}

// Every download asks for that of the same key.
const patterns = new Map<string, RegExp>();

function patternOf(secrets: readonly string[]): RegExp {
  const name = JSON.stringify(secrets);
  const known = patterns.get(name);
  if (known !== undefined) return known;
  const forms = [...new Set(secrets.flatMap(spellings))];
  // Longest first: a key whose head is another key must not leave its tail behind.
  const pattern = new RegExp(forms.sort((one, other) => other.length - one.length).join('|'), 'gi');
  patterns.set(name, pattern);
  return pattern;
}

// Escapes of several kinds inside each other: JSON of HTML of an address has three.
const maxLevels = 6;

// Looked for in the text as it is, and as it is without one more level of escapes each time.
function hidden(text: string, pattern: RegExp): string {
  const texts = [text];
  for (let next = withoutEscapes(text); next !== texts.at(-1) && texts.length <= maxLevels;) {
    texts.push(next);
    next = withoutEscapes(next);
  }
  const deepest = texts.findLastIndex((shown) => shown.search(pattern) >= 0);
  if (deepest < 0) return text;
  const escapes: Escape[][] = [];
  const spans = texts.slice(0, deepest + 1).flatMap((shown) => {
    const found = Array.from(shown.matchAll(pattern), ({ 0: { length }, index }): Span => [
      index,
      index + length,
    ]);
    const inText = found.map((span) => escapes.reduceRight<Span>(withEscapes, span));
    const own: Escape[] = [];
    withoutEscapes(shown, (escape) => own.push(escape));
    escapes.push(own);
    return inText;
  });
  return replaced(text, spans);
}

function replaced(text: string, spans: Span[]): string {
  let result = '';
  let at = 0;
  for (const [from, to] of spans.sort(([one], [other]) => one - other)) {
    if (from >= at) result += text.slice(at, from) + redacted;
    at = Math.max(at, to);
  }
  return result + text.slice(at);
}

/**
 * A function for text that people or logs see: {@link secretRedactor}, and also the values of authentication
 * headers, signatures and tokens in the queries of addresses, and credentials before an `@`. Not for text that
 * is read again: a signed address does not work without its signature.
 */
export function redactor(secrets: readonly string[]): (text: string) => string {
  const withoutSecrets = secretRedactor(secrets);
  return (text) =>
    withoutSecrets(text)
      .replace(headerInText, `$1$2${redacted}`)
      .replace(queryInText, `$1$2${redacted}`)
      .replace(userInfoInText, `$1${redacted}@`)
      .replace(maskedKey, redacted);
}

// An address of any scheme, also escaped as in JSON.
const address = /(?:\b[a-z][a-z\d+.-]{0,20}:)?(?:\\*\/){2}[^\s"'<>]+/gi;
const addressUser = /^([^/]*(?:\\*\/){2})[^/\\@?#]+@/;
const queryValue = /([?&;#]|\\+u0026|%26)([\w.%~-]+)=([^&"'<>#\\;]+)/gi;
// A value of eight characters or more may be a signature, a token, or another address.
const plainValue = /^[\w.,:+-]{1,7}$/;
const secretName =
  /sig|secret|token|cred|pass|pwd|key|auth|mac|hash|md5|jwt|code|ticket|session|policy|access|%/i;

/** Removes from addresses their credentials and the query values that may sign them: for files that people pass on. */
export function withoutSignatures(text: string): string {
  return text.replace(address, (found) =>
    found
      .replace(queryValue, (all: string, before: string, name: string, value: string) =>
        plainValue.test(value) && !secretName.test(name) ? all : `${before}${name}=${redacted}`,
      )
      .replace(addressUser, `$1${redacted}@`),
  );
}

/**
 * The headers of a request as `--dry-run` and `-v` show them: whatever may authenticate is replaced, with the
 * scheme (`Bearer`) left to see. `secretNames` adds header names that the settings chose, in any letter case.
 */
export function redactHeaders(
  headers: Readonly<Record<string, string>>,
  secretNames: readonly string[] = [],
): Record<string, string> {
  const also = new Set(secretNames.map((name) => name.toLowerCase()));
  const isSecret = (name: string): boolean => secretHeader.test(name) || also.has(name.toLowerCase());
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, isSecret(name) ? hideValue(value) : value]),
  );
}

function hideValue(value: string): string {
  const scheme = /^(?:Bearer|Basic|Token|Digest)(?= )/i.exec(value)?.[0];
  return scheme === undefined ? redacted : `${scheme} ${redacted}`;
}

// Regular expressions (matched in any letter case) for every spelling of one secret, except escapes.
function spellings(secret: string): string[] {
  if (secret.length < shortest) return [`(?<![\\w-])${literal(secret)}(?![\\w-])`];
  const bare = secret.replace(/^sk-/i, '');
  const values = [secret, bare, unescaped(secret), unescaped(bare)].filter(
    ({ length }) => length >= shortest,
  );
  return [...values, ...values.flatMap(encodings)].map(literal);
}

// A key may hold what looks like an escape: below the level of the text it is undone with the others.
function unescaped(secret: string): string {
  const next = withoutEscapes(secret);
  return next === secret ? secret : unescaped(next);
}

function encodings(value: string): string[] {
  const cores = base64Cores(value).filter((core) => core.length >= shortest);
  return [Buffer.from(value).toString('hex'), ...cores];
}

// The Base64 digits that depend on the secret alone, for each offset (0, 1 or 2 bytes) and any text around it.
function base64Cores(secret: string): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.from('\0'.repeat(offset) + secret);
    const from = Math.ceil((offset * 8) / 6);
    const to = Math.floor((bytes.length * 8) / 6);
    return [bytes.toString('base64').slice(from, to), bytes.toString('base64url').slice(from, to)];
  });
}

function literal(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

// HTML's entities of visible ASCII, by name in lower case.
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

/** The place of an escape: from `start` to `end` in the text, and at `at` in the text with its escapes decoded, as one character. */
interface Escape {
  start: number;
  end: number;
  at: number;
}

/**
 * The text with the escapes of visible ASCII undone: JSON's, percent-encoding, the entities of HTML. One inside
 * another of its own kind goes with it; of two kinds one level goes. `found` takes each in its order.
 */
function withoutEscapes(text: string, found?: (escape: Escape) => void): string {
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

// A text may consist of escapes only, few of them different.
const known = new Map<string, string>();
const maxKnown = 1000;

function knownCharacter(escape: string): string {
  let character = known.get(escape);
  if (character === undefined) {
    character = characterOf(escape);
    if (known.size < maxKnown && escape.length < 32) known.set(escape, character);
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
function withEscapes([from, to]: Span, escapes: readonly Escape[]): Span {
  return [sourceOf(from, escapes).start, sourceOf(to - 1, escapes).end];
}

/** From the first character up to the one after the last. */
type Span = readonly [number, number];

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
