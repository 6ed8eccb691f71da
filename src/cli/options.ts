import { Option } from 'commander';
import { messageOf, usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';

/**
 * An option that takes one value; given twice it is refused, since one of the two would be ignored. `parse` throws
 * an error that says what is allowed: `a whole number`.
 */
export function single(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags, description);
  return option.argParser((value: string, before: unknown) => {
    if (before !== undefined) throw usageError(`${nameOf(option)} is given twice.`);
    return parse === undefined ? value : parsed(option, value, parse);
  });
}

/** An option that may be repeated; its values are collected, each as `parse` reads it (see {@link single}). */
export function repeatable(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags.replace('...', ''), `${description} (repeatable)`);
  return option.argParser((value: string, before: unknown[] | undefined) => [
    ...(before ?? []),
    parse === undefined ? value : parsed(option, value, parse),
  ]);
}

/** The parser of an option whose value is one of some words; completion offers them. */
export function oneOf(option: Option, words: readonly string[]): Option {
  const parse = option.parseArg;
  option.choices(words);
  return option.argParser((value: string, before: unknown) => {
    if (!words.includes(value)) throw refused(option, value, `one of ${words.join(', ')}`);
    return parse === undefined ? value : parse(value, before);
  });
}

/** An option that takes some of `words`, separated by commas or repeated; completion offers them. */
export function someOf(flags: string, description: string, words: readonly string[]): Option {
  const option = repeatable(flags, description, (text) => {
    const given = text.split(',');
    if (given.every((word) => words.includes(word))) return given;
    throw new Error(`one of ${words.join(', ')}`);
  });
  const parse = option.parseArg;
  option.description = `${description} (several: repeated, or separated by commas)`;
  option.choices(words);
  return option.argParser((value: string, before: unknown) => (parse?.(value, before) as string[][]).flat());
}

/** A reader of whole numbers within bounds. */
export function wholeNumber(from: number, to = 999_999_999): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
    if (value >= from && value <= to) return value;
    throw new Error(to === 999_999_999 ? `a whole number from ${from}` : `a whole number, ${from} to ${to}`);
  };
}

function parsed(option: Option, value: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(value);
  } catch (error) {
    throw refused(option, value, messageOf(error).replace(/\.$/, ''));
  }
}

function refused(option: Option, value: string, allowed: string): Error {
  return usageError(`${nameOf(option)} ${shownValue(value)}: allowed is ${allowed}.`);
}

function shownValue(value: string): string {
  return value === '' ? '""' : printableLine(value, 60);
}

function nameOf(option: Option): string {
  return option.long ?? option.flags;
}
