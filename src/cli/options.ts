import { Option, type Command } from 'commander';
import type { SettingFlags } from '../config/rules.ts';
import { parseAmount } from '../decimal.ts';
import { parseDuration } from '../clock.ts';
import { messageOf, usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';
import { outputProblem } from '../store-url.ts';

/**
 * Creates an option with one value. Repeating the option is an error, because one value would be ignored. If `parse`
 * throws, the error message must describe the allowed values, such as `a whole number`.
 */
export function single(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags, description);
  return option.argParser((value: string, previous: unknown) => {
    if (previous !== undefined) throw usageError(`${nameOf(option)} can be used only once.`);
    return parse === undefined ? value : parseValue(option, value, parse);
  });
}

/**
 * Creates an option for an output path or object. Refuses a path that begins with a `~` that the shell has not
 * expanded, and URLs of other kinds. Otherwise, mgw would create a folder with that name.
 */
export function outputOption(flags: string, description: string): Option {
  return single(flags, description, (path) => {
    const problem = outputProblem(path);
    if (problem !== undefined) throw new Error(problem);
    return path;
  }).helpGroup('Output:');
}

const repeatables = new WeakSet<Option>();

/** Whether the option was created by {@link repeatable}. */
export function isRepeatable(option: Option): boolean {
  return repeatables.has(option);
}

/**
 * Creates an option that may be repeated. Parses each value with `parse` (see {@link single}), and collects the
 * results.
 */
export function repeatable(flags: string, description: string, parse?: (text: string) => unknown): Option {
  const option = new Option(flags.replace('...', ''), `${description} (repeatable)`);
  repeatables.add(option);
  return option.argParser((value: string, previous: unknown[] | undefined) => [
    ...(previous ?? []),
    parse === undefined ? value : parseValue(option, value, parse),
  ]);
}

/** Restricts an option to the given words, which completion suggests. */
export function oneOf(option: Option, words: readonly string[]): Option {
  const parse = option.parseArg;
  option.choices(words);
  return option.argParser((value: string, previous: unknown) => {
    if (!words.includes(value)) throw invalidValue(option, value, `one of ${words.join(', ')}`);
    return parse === undefined ? value : parse(value, previous);
  });
}

/**
 * Creates an option that accepts several of `words`, separated by commas or repeated. Completion suggests the words.
 */
export function someOf(flags: string, description: string, words: readonly string[]): Option {
  const option = repeatable(flags, description, (text) => {
    const values = text.split(',');
    if (values.every((word) => words.includes(word))) return values;
    throw new Error(`one of ${words.join(', ')}`);
  });
  const parse = option.parseArg;
  option.description = `${description} (repeatable, or comma-separated)`;
  option.choices(words);
  return option.argParser((value: string, previous: unknown) =>
    (parse?.(value, previous) as string[][]).flat(),
  );
}

/** Returns a parser for whole numbers within bounds. */
export function wholeNumber(min: number, max = 999_999_999): (text: string) => number {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN;
    if (value >= min && value <= max) return value;
    throw new Error(
      max === 999_999_999 ? `a whole number, ${min} or more` : `a whole number from ${min} to ${max}`,
    );
  };
}

/** Checks an option's amount, and returns it unchanged. @throws Error that describes the allowed form. */
export function amount(text: string): string {
  parseAmount(text);
  return text;
}

function parseValue(option: Option, value: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(value);
  } catch (error) {
    throw invalidValue(option, value, messageOf(error).replace(/\.$/, ''));
  }
}

function invalidValue(option: Option, value: string, allowed: string): Error {
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

/** Returns the `--budget` and `--budget-name` options. `scope` describes what `--budget` covers. */
export function budgetOptions(scope: string): Option[] {
  return [
    single('--budget <amount>', `maximum to spend on ${scope}, across all its runs`, amount).helpGroup(
      'Money:',
    ),
    single('--budget-name <name>', "spend from this budget (default: the profile's)").helpGroup('Money:'),
  ];
}

/** Returns the `--since` option, whose value {@link sinceTime} parses. */
export function sinceOption(): Option {
  return single('--since <time>', 'only jobs since this day, time or age, such as 2026-11-22 or 7d');
}

/**
 * Parses the value of `--since`, and returns the time as job records store it: ISO 8601 in UTC. `now` is in ms since
 * 1970.
 * @throws MgwError('usage') if `text` is not a time.
 */
export function sinceTime(text: string, now: number): string {
  const [, day] = /^(\d{4}-\d\d-\d\d)(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.exec(text) ?? [];
  try {
    // JavaScript parses February 30 as a day in March, and throws for an invalid date.
    if (day !== undefined && new Date(day).toISOString().startsWith(day)) return new Date(text).toISOString();
    return new Date(now - parseDuration(text)).toISOString();
  } catch {
    throw usageError(
      '--since must be a day such as 2026-11-22, a time such as 2026-11-22T08:00:00Z, or how long ago, such as 7d.',
    );
  }
}

/** The global flags (design 1), and the flags of individual commands that are also settings. */
export interface Globals extends SettingFlags {
  json?: boolean;
  /** `--fields`: the members of the JSON document to keep; implies `json`. */
  fields?: string[];
  quiet?: boolean;
  verbose?: boolean;
  color?: boolean;
  /** `--notify`, for commands that wait. */
  notify?: boolean;
  /** `--on-done`: a shell command line. */
  onDone?: string;
  open?: boolean;
}

/** Adds the global flags to the program. The parser accepts them before and after any subcommand. */
export function addGlobals(program: Command): Command {
  return program
    .addOption(single('--profile <name>', 'profile to use from the config file'))
    .addOption(single('--base-url <url>', "the gateway's address, without /v1"))
    .option('--sandbox', 'use the built-in sandbox gateway: offline and free')
    .option('--json', 'print one JSON document on stdout, even on failure')
    .addOption(
      single(
        '--fields <names>',
        'keep only these members of the JSON document, such as id,state',
        fieldNames,
      ),
    )
    .option('-q, --quiet', 'print only errors on stderr')
    .option('-v, --verbose', 'show each call on stderr (the key redacted)')
    .addOption(new Option('--no-color', 'disable colours'))
    .addOption(new Option('--no-input', 'never prompt for input'))
    .option('--allow-http', 'accept an http:// base URL that is not loopback')
    .option('--allow-insecure-database', 'connect to a database without TLS')
    .addOption(repeatable('--trust-origin <origin>', 'also send the key to result URLs with this origin'));
}

function fieldNames(text: string): string[] {
  const names = text.split(',');
  if (names.every((name) => /^\w+$/.test(name))) return names;
  throw new Error('names separated by commas, such as id,state,files');
}
