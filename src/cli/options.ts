import { Option, type Command } from 'commander';
import { parseAmount } from '../decimal.ts';
import { parseDuration } from '../clock.ts';
import { messageOf, usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';

/**
 * Creates an option with one value. The option must not be given twice, because one value would be ignored. `parse`
 * throws an error whose message says what is allowed, such as `a whole number`.
 */
export function single(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags, description);
  return option.argParser((value: string, before: unknown) => {
    if (before !== undefined) throw usageError(`${nameOf(option)} is given twice.`);
    return parse === undefined ? value : parsed(option, value, parse);
  });
}

const repeatables = new WeakSet<Option>();

/** Whether {@link repeatable} made the option. */
export function isRepeatable(option: Option): boolean {
  return repeatables.has(option);
}

/** Creates an option that may be repeated. Its values are collected, each parsed by `parse` (see {@link single}). */
export function repeatable(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags.replace('...', ''), `${description} (repeatable)`);
  repeatables.add(option);
  return option.argParser((value: string, before: unknown[] | undefined) => [
    ...(before ?? []),
    parse === undefined ? value : parsed(option, value, parse),
  ]);
}

/** Restricts the value of an option to some words, which completion offers. */
export function oneOf(option: Option, words: readonly string[]): Option {
  const parse = option.parseArg;
  option.choices(words);
  return option.argParser((value: string, before: unknown) => {
    if (!words.includes(value)) throw refused(option, value, `one of ${words.join(', ')}`);
    return parse === undefined ? value : parse(value, before);
  });
}

/** Creates an option that accepts several of `words`, separated by commas or repeated. Completion offers the words. */
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

/** Returns a parser for whole numbers within bounds. */
export function wholeNumber(from: number, to = 999_999_999): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
    if (value >= from && value <= to) return value;
    throw new Error(
      to === 999_999_999 ? `a whole number, ${from} or more` : `a whole number from ${from} to ${to}`,
    );
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
  return usageError(`${nameOf(option)} ${shownValue(value)}: must be ${allowed}.`);
}

function shownValue(value: string): string {
  return value === '' ? '""' : printableLine(value, 60);
}

function nameOf(option: Option): string {
  return option.long ?? option.flags;
}

/** The flags that limit spending. */
export interface BudgetOptions {
  /** The amount of `--budget`, an exact decimal in plain digits. */
  budget?: string;
  budgetName?: string;
}

/** Returns `--budget` and `--budget-name`. `whole` says what `--budget` covers. */
export function budgetOptions(whole: string): Option[] {
  return [
    single('--budget <amount>', `maximum to spend on ${whole}, over all its runs`, (text) => {
      parseAmount(text);
      return text;
    }).helpGroup('Money:'),
    single('--budget-name <name>', "spend from this budget (default: the profile's)").helpGroup('Money:'),
  ];
}

/** Returns `--since TIME`, which {@link sinceTime} parses. */
export function sinceOption(): Option {
  return single('--since <time>', 'a day such as 2026-11-22, a time, or how long ago, such as 7d');
}

/**
 * Returns the time that `--since` names, ISO 8601 in UTC, as in records; `now` in ms since 1970.
 * @throws MgwError('usage') if it is not a time.
 */
export function sinceTime(text: string, now: number): string {
  if (/^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.test(text)) {
    const time = Date.parse(text);
    if (!Number.isNaN(time)) return new Date(time).toISOString();
  }
  try {
    return new Date(now - parseDuration(text)).toISOString();
  } catch {
    throw usageError(
      '--since: must be a day such as 2026-11-22, a time such as 2026-11-22T08:00:00Z, or how long ago, such as 7d.',
    );
  }
}

/** The global flags (design 1), and the flags of single commands that are also settings. */
export interface Globals {
  profile?: string;
  baseUrl?: string;
  sandbox?: boolean;
  json?: boolean;
  /** `--fields`: the members to keep of the JSON document; implies `json`. */
  fields?: string[];
  quiet?: boolean;
  verbose?: boolean;
  color?: boolean;
  input?: boolean;
  allowHttp?: boolean;
  trustOrigin?: string[];
  /** Flags for commands that wait, from here to `retries`. */
  timeout?: string;
  pollInterval?: string;
  requestTimeout?: string;
  retries?: string;
  /** `--notify`, for commands that wait. */
  notify?: boolean;
  /** `--on-done`: a command line for the shell. */
  onDone?: string;
  open?: boolean;
  /** The value of `--budget-name`, for commands that pay. */
  budgetName?: string;
  /** The value of `--speaker`, for `mgw tts`. */
  speaker?: string;
}

/** Adds the global flags to the program; commander finds them before and after any subcommand. */
export function addGlobals(program: Command): Command {
  return program
    .addOption(single('--profile <name>', 'profile of the config file to use'))
    .addOption(single('--base-url <url>', 'address of the gateway, without /v1'))
    .option('--sandbox', 'use the built-in sandbox gateway: offline and free')
    .option('--json', 'print one JSON document on stdout, also on failure')
    .addOption(
      single(
        '--fields <names>',
        'keep only these members of the JSON document, such as id,state',
        fieldNames,
      ),
    )
    .option('-q, --quiet', 'print only errors on stderr')
    .option('-v, --verbose', 'show each call on stderr (the key redacted)')
    .addOption(new Option('--no-color', 'no colours'))
    .addOption(new Option('--no-input', 'never prompt for input'))
    .option('--allow-http', 'accept an http:// base URL that is not loopback')
    .option('--allow-insecure-database', 'connect to a database without TLS')
    .addOption(repeatable('--trust-origin <origin>', 'also send the key to result URLs of this origin'));
}

function fieldNames(text: string): string[] {
  const names = text.split(',');
  if (names.every((name) => /^\w+$/.test(name))) return names;
  throw new Error('names separated by commas, such as id,state,files');
}
