/** The text that replaces a secret. */
export const redacted = '[redacted]';

/**
 * A secret of at least this length, in UTF-16 code units, is replaced even inside words. A shorter secret often occurs
 * in other text by chance, so it is replaced only as a whole word.
 */
export const minSecretLength = 8;

// Matches the names of headers that may contain a secret. Does not match the plural `tokens`, as in
// `X-Control-Require-Usage-Tokens-Return`.
const secretHeader = /auth|key|token(?!s)|cookie|secret|signature|credential/i;
// Matches header lines, JSON members and curl arguments: a name, a colon or equals sign, and the value.
const headerInText =
  /\b((?:proxy-)?authorization|x-api-key|x-goog-api-key|api-key|(?:set-)?cookie)(\\?["']?\s*[:=]\s*\\?["']?)[^"'\r\n\\]+/gi;
const queryInText =
  /([?&;]|\\u0026|%26)((?:[\w.-]*(?:signature|token|secret|credential|password|api[-_]?key)|access|sig|sign|key|auth)=)[^&\s"'<>#\\;]+/gi;
const userInfoInText = /\b([a-z][a-z\d+.-]{0,20}:\/\/)[^/\s:@"'<>]*:[^/\s@"'<>]*@/gi;
// Matches a refused key as gateways quote it, with asterisks in the middle.
const maskedKey = /\bsk-\w{1,16}\*{2,}\w{0,16}/g;

/**
 * Returns a function that replaces every encoding of each secret with `[redacted]`. The encodings are plain text
 * with or without `sk-`, hexadecimal, and Base64 and Base64url at each of the three alignments. Any characters
 * may be escaped as in JSON, a URL or HTML, even repeatedly or nested. All other text is unchanged, so that a
 * recorded response can still be parsed.
 */
export function secretRedactor(secrets: readonly string[]): (text: string) => string {
  const nonEmpty = secrets.filter((secret) => secret !== '');
  if (nonEmpty.length === 0) return (text) => text;
  const pattern = patternOf(nonEmpty);
  return (text) => redactEncoded(text, pattern);
}

// Cached, because every download uses the same key's pattern.
const patterns = new Map<string, RegExp>();

function patternOf(secrets: readonly string[]): RegExp {
  const name = JSON.stringify(secrets);
  const cached = patterns.get(name);
  if (cached !== undefined) return cached;
  const forms = [...new Set(secrets.flatMap(spellings))];
  // Longest first, so that a key that begins with another key is replaced as a whole.
  const pattern = new RegExp(forms.sort((one, other) => other.length - one.length).join('|'), 'gi');
  patterns.set(name, pattern);
  return pattern;
}

// The maximum nesting of escapes: a URL in HTML in JSON has three levels.
const maxLevels = 6;

// Searches the text as given, then decodes one level of escapes at a time and searches again.
function redactEncoded(text: string, pattern: RegExp): string {
  const decodings = [text];
  for (let next = decodeEscapes(text); next !== decodings.at(-1) && decodings.length <= maxLevels;) {
    decodings.push(next);
    next = decodeEscapes(next);
  }
  const deepest = decodings.findLastIndex((decoded) => decoded.search(pattern) >= 0);
  if (deepest < 0) return text;
  const escapes: Escape[][] = [];
  const spans = decodings.slice(0, deepest + 1).flatMap((decoded) => {
    const matches = Array.from(decoded.matchAll(pattern), ({ 0: { length }, index }): Span => [
      index,
      index + length,
    ]);
    const sourceSpans = matches.map((span) => escapes.reduceRight<Span>(sourceSpan, span));
    const levelEscapes: Escape[] = [];
    decodeEscapes(decoded, (escape) => levelEscapes.push(escape));
    escapes.push(levelEscapes);
    return sourceSpans;
  });
  return replaceSpans(text, spans);
}

function replaceSpans(text: string, spans: Span[]): string {
  let result = '';
  let at = 0;
  for (const [from, to] of spans.sort(([one], [other]) => one - other)) {
    if (from >= at) result += text.slice(at, from) + redacted;
    at = Math.max(at, to);
  }
  return result + text.slice(at);
}

/**
 * Returns a function that redacts text for users and logs. Like {@link secretRedactor}, it redacts secrets. It also
 * redacts the values of authentication headers, signatures and tokens in queries, and credentials before an `@`. Do not
 * use it for text that the program uses again, because a signed URL does not work without its signature.
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

// A URL with any scheme or none, including one whose slashes are escaped as in JSON.
const urlPattern = /(?:\b[a-z][a-z\d+.-]{0,20}:)?(?:\\{0,16}\/){2}[^\s"'<>]+/gi;
const urlUserInfo = /^([^/\\]*(?:\\{0,16}\/){2})[^/\\@?#]+@/;
const queryValue = /([?&;#]|\\{1,16}u0026|%26)([\w.%~-]{1,128})=([^&"'<>#\\;]+)/gi;
// Matches a short, harmless value. A value of eight characters or more may be a signature, a token, or another URL.
const plainValue = /^[\w.,:+-]{1,7}$/;
const secretName =
  /sig|secret|token|cred|pass|pwd|key|auth|mac|hash|md5|jwt|code|ticket|session|policy|access|%/i;

// Matches the secrets in a URL of an object store, even if only a part of the URL is quoted, or it is percent-encoded.
const storeSignature =
  /(X-Amz-(?:Signature|Security-Token|Credential)(?:=|%(?:25)*3D))(?:(?!%(?:25)*26)[^&\s"'<>#\\;[])+/gi;

/** Removes credentials and possible signatures from URLs, for files that users share. */
export function withoutSignatures(text: string): string {
  return text
    .replace(urlPattern, (url) =>
      url
        .replace(queryValue, (all: string, before: string, name: string, value: string) =>
          plainValue.test(value) && !secretName.test(name) ? all : `${before}${name}=${redacted}`,
        )
        .replace(urlUserInfo, `$1${redacted}@`),
    )
    .replace(storeSignature, `$1${redacted}`);
}

/**
 * Returns a request's headers as `--dry-run` and `-v` print them: values that may authenticate are replaced, except the
 * scheme (`Bearer`). `secretNames` are additional secret headers from the settings, in any letter case.
 */
export function redactHeaders(
  headers: Readonly<Record<string, string>>,
  secretNames: readonly string[] = [],
): Record<string, string> {
  const extraNames = new Set(secretNames.map((name) => name.toLowerCase()));
  const isSecret = (name: string): boolean => secretHeader.test(name) || extraNames.has(name.toLowerCase());
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, isSecret(name) ? hideValue(value) : value]),
  );
}

function hideValue(value: string): string {
  const scheme = /^(?:Bearer|Basic|Token|Digest)(?= )/i.exec(value)?.[0];
  return scheme === undefined ? redacted : `${scheme} ${redacted}`;
}

// Returns case-insensitive regular expressions for every encoding of a secret. Escapes are decoded before the search.
function spellings(secret: string): string[] {
  if (secret.length < minSecretLength) return [`(?<![\\w-])${escapeRegExp(secret)}(?![\\w-])`];
  const bare = secret.replace(/^sk-/i, '');
  const values = [secret, bare, decodeFully(secret), decodeFully(bare)].filter(
    ({ length }) => length >= minSecretLength,
  );
  return [...values, ...values.flatMap(encodings)].map(escapeRegExp);
}

// A key may contain a sequence that looks like an escape. That sequence is decoded together with the real escapes.
function decodeFully(secret: string): string {
  const next = decodeEscapes(secret);
  return next === secret ? secret : decodeFully(next);
}

function encodings(value: string): string[] {
  const cores = base64Cores(value).filter((core) => core.length >= minSecretLength);
  return [Buffer.from(value).toString('hex'), ...cores];
}

// Returns the Base64 digits that depend only on the secret, for each offset (0, 1 or 2 bytes).
function base64Cores(secret: string): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.from('\0'.repeat(offset) + secret);
    const from = Math.ceil((offset * 8) / 6);
    const to = Math.floor((bytes.length * 8) / 6);
    return [bytes.toString('base64').slice(from, to), bytes.toString('base64url').slice(from, to)];
  });
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

// HTML entities for visible ASCII, by lower-case name.
const htmlEntities: Record<string, string> = Object.fromEntries(
  (
    'excl! quot" num# dollar$ percnt% amp& apos\' lpar( rpar) ast* midast* plus+ comma, period. sol/ colon: semi; ' +
    'lt< equals= gt> quest? commat@ lsqb[ lbrack[ bsol\\ rsqb] rbrack] hat^ lowbar_ underbar_ grave` ' +
    'lcub{ lbrace{ verbar| vert| rcub} rbrace}'
  )
    .split(' ')
    .map((entry) => [entry.slice(0, -1), entry.slice(-1)]),
);

// Matches a visible ASCII character that is escaped in JSON, a URL, HTML or XML, once or repeatedly. Escapes of other
// characters are not matched: in `%257f`, only the percent sign is decoded.
const hex = String.raw`(?:2[1-9a-f]|[3-6][\da-f]|7[\da-e])`;
const decimal = String.raw`(?:3[3-9]|[4-9]\d|1[01]\d|12[0-6])`;
const json = String.raw`\\+(?:u00${hex}|x${hex}|["'/])|\\{2,}`;
const percent = `%(?:25)*${hex}`;
const number = String.raw`#0*${decimal}(?!\d);?|#x0*${hex}(?![\da-f]);?`;
const entity = `&(?:amp;)*(?:${number}|(?:${Object.keys(htmlEntities).join('|')});)`;
const escape = new RegExp(`${json}|${percent}|${entity}`, 'gi');

/**
 * An escape's position: from `start` to `end` in the original text, and the single
 * character at `at` in the decoded text.
 */
interface Escape {
  start: number;
  end: number;
  at: number;
}

/**
 * Decodes the escapes of visible ASCII in JSON, URLs (percent-encoding) and HTML (entities). Decodes
 * repeated escapes of one kind completely, but only one level of nested escapes of different kinds. Calls
 * `found` with each escape, in order.
 */
function decodeEscapes(text: string, found?: (escape: Escape) => void): string {
  if (!/[\\%&]/.test(text)) return text;
  let removedCount = 0;
  return text.replace(escape, (match: string, start: number) => {
    const character = cachedCharacter(match);
    if (found === undefined) return character;
    found({ start, end: start + match.length, at: start - removedCount });
    removedCount += match.length - 1;
    return character;
  });
}

// A cache, because text may repeat a few escapes many times.
const characterCache = new Map<string, string>();
const maxCached = 1000;

function cachedCharacter(escape: string): string {
  let character = characterCache.get(escape);
  if (character === undefined) {
    character = characterOf(escape);
    if (characterCache.size < maxCached && escape.length < 32) characterCache.set(escape, character);
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
  if (name !== undefined) return htmlEntities[name.toLowerCase()] ?? escape;
  return hexDigits === undefined ? characterFor(digits ?? '', 10) : characterFor(hexDigits, 16);
}

function characterFor(digits: string, base: 10 | 16): string {
  return String.fromCharCode(Number.parseInt(digits, base));
}

/** Converts a span of the decoded text to a span of the original text. `escapes` must be in order. */
function sourceSpan([from, to]: Span, escapes: readonly Escape[]): Span {
  return [sourceOf(from, escapes).start, sourceOf(to - 1, escapes).end];
}

/** The index of the first character, and the index after the last character. */
type Span = readonly [number, number];

function sourceOf(index: number, escapes: readonly Escape[]): { start: number; end: number } {
  let [low, high] = [0, escapes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((escapes[middle]?.at ?? 0) <= index) low = middle + 1;
    else high = middle;
  }
  const nearest = escapes[low - 1];
  if (nearest === undefined) return { start: index, end: index + 1 };
  if (nearest.at === index) return nearest;
  const start = nearest.end + index - nearest.at - 1;
  return { start, end: start + 1 };
}

/** The secrets known to a session, for redaction. */
export class Secrets {
  readonly #secrets: string[] = [];
  #redactor = secretRedactor([]);

  add(...secrets: (string | undefined)[]): void {
    this.#secrets.push(...secrets.filter((secret) => secret !== undefined));
    this.#redactor = secretRedactor(this.#secrets);
  }

  redact(text: string): string {
    return this.#redactor(text);
  }
}
