import type { Violation } from './protocol.ts';

/** Shown instead of a value from a file, because errors never quote files. */
export const valueInFile = 'the value in the file';

const maxLength = 60;
const maxQuotedLength = 10_000;

/**
 * Formats a value for error messages: at most 60 characters, with control and format characters escaped and the
 * password in a URL masked. A string is quoted only if it could be mistaken for another value. For a very long string,
 * only the length is shown. Returns '' for undefined.
 */
export function shownValue(value: unknown): string {
  if (value === undefined) return '';
  if (value === null) return 'null';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object') return 'an object';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value !== 'string') return `a ${typeof value}`;
  if (value.length > maxQuotedLength) return `text of ${charactersIn(value)} characters`;
  const text = printable(value);
  return looksLikeText(value) ? shorten(text, maxLength) : `"${shorten(text, maxLength - 2)}"`;
}

/** Returns a string's length in code points, the unit of prompt limits. */
export function charactersIn(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}

function looksLikeText(value: string): boolean {
  return value.trim() === value && !/^(|true|false|null|-?\d+(\.\d+)?)$/.test(value);
}

// Escapes unprintable characters and masks a URL's password. Examines only the start of a value, because the displayed
// text is short and the value may be a whole file.
function printable(value: string): string {
  return value
    .slice(0, 4 * maxLength)
    .replace(/\/\/[^/?#]*@/, '//***@')
    .replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (bad) => `\\u{${bad.codePointAt(0)?.toString(16) ?? ''}}`);
}

function shorten(value: string, max: number): string {
  if (value.length <= max) return value;
  return `${value.slice(0, max - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

/**
 * Returns one line for each violation: the flag, the field, the value, the model and the allowed values. An empty value
 * means that the field is missing.
 */
export function violationMessage(violations: readonly Violation[], model?: string): string {
  const name = shownValue(model);
  // Omit "for MODEL" if the message is about the model itself.
  const scope = ({ value }: Violation): string => (name === '' || value === name ? '' : ` for ${name}`);
  return violations.map((violation) => formatViolation(violation, scope(violation))).join('\n');
}

function formatViolation({ field, value, allowed, flag, meant }: Violation, scope: string): string {
  if (meant !== undefined)
    return `${shownValue(field)}: no such field${scope}; did you mean ${meant}? To send it unchanged, use --no-check.`;
  const label = flag === undefined || flag.slice(2) === field ? (flag ?? field) : `${flag} (${field})`;
  if (value === '') return `${label}: missing${scope}; needed: ${allowed}`;
  return `${label}: ${value} is not allowed${scope}; allowed: ${allowed}`;
}
