import type { Flag } from './protocol.ts';

/** Defines a flag with one value (default: non-empty text). */
export function valueFlag(
  flags: string,
  field: string,
  description: string,
  options: Partial<Flag> = {},
): Flag {
  return { flags, field, description, kind: 'text', parse: text, ...options };
}

/** Defines a flag that may be repeated. Each value is parsed separately. */
export function listFlag(
  flags: string,
  field: string,
  description: string,
  options: Partial<Flag> = {},
): Flag {
  return { flags, field, description, kind: 'list', parse: text, ...options };
}

/** Defines a flag that also has a `--no-` form. */
export function switchFlag(
  flags: string,
  field: string,
  description: string,
  options: Partial<Flag> = {},
): Flag {
  return { flags, field, description, kind: 'switch', ...options };
}

/*
 * Parsers for the values of flags. Each receives the value from the command line, and throws an Error whose message
 * states what is allowed without naming the flag. They are strict: no white space, no `1e3`, no leading zeros or `+`.
 */

/** A whole number of any sign, exact in a double. */
export function wholeNumber(value: string | boolean): number {
  const number = /^(0|-?[1-9]\d*)$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(number)) throw new Error('a whole number in digits, such as 5');
  return number;
}

/** A decimal number of any sign, written in plain digits: `5`, `-1.25`. */
export function decimalNumber(value: string | boolean): number {
  const number = /^-?(0|[1-9]\d*)(\.\d+)?$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!Number.isFinite(number)) throw new Error('a number in digits, such as 5');
  return number;
}

/** Any text that is not blank, unchanged. */
export function text(value: string | boolean): string {
  if (typeof value !== 'string' || value.trim() === '') throw new Error('non-empty text');
  return value;
}

/** Returns a parser that accepts one of the words, with exact spelling. */
export function oneOf(...words: readonly string[]): (value: string | boolean) => string {
  return (value) => {
    if (typeof value !== 'string' || !words.includes(value)) throw new Error(words.join(', '));
    return value;
  };
}
