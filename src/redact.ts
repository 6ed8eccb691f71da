/** What stands where a secret stood. */
export const redacted = '[redacted]';

// A shorter secret is a word of its own in too many texts: it is replaced only where it stands alone.
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
 * without its `sk-`; any of its characters percent-encoded or JSON-escaped, once or several times; hexadecimal; Base64
 * and Base64url at each of the three alignments. Everything else stays, so a recorded answer can still be read.
 */
export function secretRedactor(secrets: readonly string[]): (text: string) => string {
  const given = secrets.filter((secret) => secret !== '');
  if (given.length === 0) return (text) => text;
  let plain: string[] | undefined;
  let pattern: RegExp | undefined;
  return (text) => {
    plain ??= given.flatMap(unescaped).map((form) => form.toUpperCase());
    if (!mayHold(text, plain)) return text;
    pattern ??= patternOf(given);
    return text.replace(pattern, redacted);
  };
}

// The pattern for every spelling is dear to build; most texts hold neither a secret nor an escape to hide it.
function mayHold(text: string, plain: readonly string[]): boolean {
  if (/\\|%[\da-f]{2}/i.test(text)) return true;
  const capitals = text.toUpperCase();
  return plain.some((form) => capitals.includes(form));
}

function patternOf(secrets: readonly string[]): RegExp {
  const forms = [...new Set(secrets.flatMap(spellings))];
  // Longest first: a key whose head is another key must not leave its tail behind.
  return new RegExp(forms.sort((one, other) => other.length - one.length).join('|'), 'gi');
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

// Regular expressions (matched in any letter case) for every spelling of one secret.
function spellings(secret: string): string[] {
  if (secret.length < shortest) return [`(?<![\\w-])${anyEscape(secret)}(?![\\w-])`];
  return valuesOf(secret).flatMap((value) => [anyEscape(value), ...encodings(value).map(literal)]);
}

// Every spelling of a secret that needs no escape.
function unescaped(secret: string): string[] {
  if (secret.length < shortest) return [secret];
  return valuesOf(secret).flatMap((value) => [value, ...encodings(value)]);
}

function valuesOf(secret: string): string[] {
  const bare = secret.replace(/^sk-/i, '');
  return bare.length >= shortest && bare !== secret ? [secret, bare] : [secret];
}

function encodings(value: string): string[] {
  const cores = base64Cores(value).filter((core) => core.length >= shortest);
  return [Buffer.from(value).toString('hex'), ...cores];
}

function anyEscape(secret: string): string {
  return (secret.match(/\\+|[^]/g) ?? []).map(anyEscapeOf).join('');
}

// A character (or a run of backslashes) as itself, JSON-escaped up to three times over, or percent-encoded.
function anyEscapeOf(part: string): string {
  if (part.startsWith('\\'))
    return `(?:\\\\{${part.length},${part.length * 8}}|(?:${encoded('\\')}){${part.length}})`;
  return /["'/]/.test(part)
    ? `(?:\\\\{0,7}${part}|${encoded(part)})`
    : `(?:${literal(part)}|${encoded(part)})`;
}

function encoded(character: string): string {
  const code = character.charCodeAt(0).toString(16).padStart(4, '0');
  const bytes = [...Buffer.from(character)].map((byte) => byte.toString(16).padStart(2, '0'));
  return `\\\\{1,7}u${code}|${bytes.map((byte) => `%(?:25)*${byte}`).join('')}`;
}

// The Base64 digits that only the secret decides, whatever stands before it (0, 1 or 2 bytes) and behind it.
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
