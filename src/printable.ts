/** The default maximum length of untrusted text, in UTF-16 code units. */
export const defaultLimit = 2000;

// Characters that move the cursor, set colours, ring the bell, or reorder or hide text: C0 and C1 (including every ESC,
// CSI and OSC), DEL, line and paragraph separators, bidi controls, invisible operators, tags, and lone surrogates.
// Zero-width joiners are allowed, because emoji and several scripts need them.
const unsafe =
  /[\0-\u{8}\v-\u{1f}\u{7f}-\u{9f}\u{61c}\u{180e}\u{200b}\u{200e}\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

/**
 * Makes untrusted text safe for terminals and logs (design 2). Escapes control characters as `\u{1b}`, and truncates
 * the text to `limit` UTF-16 code units, ending with `…`. Keeps newlines and tabs, and converts CR LF to a newline.
 * Never throws. The running time depends on `limit`, not on the length of the text.
 */
export function printable(text: string, limit: number = defaultLimit): string {
  const head = text.length > limit ? text.slice(0, limit).replace(/[\u{d800}-\u{dbff}]$/u, '') : text;
  const safe = head.replaceAll('\r\n', '\n').replace(unsafe, escapeCharacter);
  return safe.length <= limit && head.length === text.length ? safe : truncate(safe, limit);
}

/** Like {@link printable}, but on one line: collapses white space to single spaces, and trims the ends. */
export function printableLine(text: string, limit: number = defaultLimit): string {
  const bounded = text.length > limit * 4 ? `${text.slice(0, limit * 4)}…` : text;
  return printable(bounded.replace(/[\s\u{85}]+/gu, ' ').trim(), limit);
}

/** The maximum length of an encoded key in text that arrives in pieces, in UTF-16 code units. */
const maxSecretLength = 64 * 1024;

/**
 * Returns the length of the part of incomplete text that can be displayed without splitting a secret, in UTF-16 code
 * units. This part ends with the last complete line or word. An overlong line or word is split at a point that no
 * secret spans.
 */
export function safeCutIndex(text: string, redact: (text: string) => string, unit: 'line' | 'word'): number {
  const lineEnd = text.lastIndexOf('\n') + 1;
  // A key contains only visible ASCII characters, and therefore no spaces. Other text to redact, such as
  // "Authorization: Bearer X", can contain spaces.
  const wordStart = unit === 'word' && redact(text) === text ? lastWordStart(text) : 0;
  if (Math.max(lineEnd, wordStart) > 0 || text.length < 2 * maxSecretLength)
    return Math.max(lineEnd, wordStart);
  const end = text.length - maxSecretLength;
  return redact(text) === redact(text.slice(0, end)) + redact(text.slice(end)) ? end : 0;
}

function lastWordStart(text: string): number {
  let start = text.length;
  while (start > 0 && /[!-~]/.test(text.charAt(start - 1))) start -= 1;
  return start;
}

/** Whether a string contains a line break, a tab, or a character that {@link printable} escapes. */
export function hasUnsafe(text: string): boolean {
  return /[\t\n\r\u{85}]/u.test(text) || text.search(unsafe) >= 0;
}

// JSON does not escape DEL, C1, bidi controls and invisible tags, which a terminal would interpret or hide.
const terminalControls =
  /[\u007f-\u009f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;

/** Escapes control characters in JSON, so that neither a terminal nor a workflow runner interprets them. */
export function escapeControls(text: string): string {
  return text.replaceAll('##[', '#\\u0023[').replace(terminalControls, (units) =>
    units
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

function escapeCharacter(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

// Truncates text, but never in the middle of an escape or a surrogate pair.
function truncate(text: string, limit: number): string {
  if (limit <= 0) return '';
  const prefix = text.slice(0, limit - 1).replace(/(?:\\u?\{?[\da-f]{0,6}|[\u{d800}-\u{dbff}])$/u, '');
  return `${prefix}…`;
}

/** Returns a number with its noun: `1 job`, `2 jobs`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Returns the first `max` texts as a list, with the number of the others: `a, b and 3 more`. */
export function listOf(texts: readonly string[], max: number): string {
  const list = texts.slice(0, max).join(', ');
  return texts.length > max ? `${list} and ${texts.length - max} more` : list;
}
