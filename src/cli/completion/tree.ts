import type { Argument, Command, Option } from 'commander';

/** What may follow: words to choose from, a file, or something that no shell can know. */
export type Value = { kind: 'words'; words: string[] } | { kind: 'file' } | { kind: 'free' };

/** A flag as completion offers it. */
export interface FlagEntry {
  /** `-o`, or undefined. */
  short?: string;
  /** `--output`, or undefined. */
  long?: string;
  description: string;
  /** What it takes; undefined where it takes nothing. */
  value?: Value;
}

/** A command with all that can be typed after it. */
export interface CommandEntry {
  /** The words after `mgw`, separated by one blank; '' for mgw itself. */
  path: string;
  commands: { name: string; description: string }[];
  /** Its own flags and the global ones. */
  flags: FlagEntry[];
  /** What its arguments are. */
  argument: Value;
}

/** Every visible command of a program, itself first, as one flat list. */
export function commandEntries(command: Command, path = ''): CommandEntry[] {
  const help = command.createHelp();
  const children = help.visibleCommands(command);
  const entry: CommandEntry = {
    path,
    commands: children.map((child) => ({ name: child.name(), description: firstLine(child.description()) })),
    flags: [...help.visibleOptions(command), ...help.visibleGlobalOptions(command)].map(flagEntry),
    argument: argumentValue(command.registeredArguments),
  };
  const below = children
    .filter((child) => command.commands.includes(child))
    .flatMap((child) => commandEntries(child, `${path} ${child.name()}`.trim()));
  return [entry, ...below];
}

/** All flags of all commands that take a value, by every name they have. */
export function valuedFlags(entries: readonly CommandEntry[]): string[] {
  const flags = entries.flatMap((entry) => entry.flags).filter(({ value }) => value !== undefined);
  return [...new Set(flags.flatMap(namesOf))].sort();
}

/** The names of a flag: `-o`, `--output`. */
export function namesOf({ short, long }: FlagEntry): string[] {
  return [short, long].filter((name) => name !== undefined);
}

function flagEntry(option: Option): FlagEntry {
  const takesValue = option.required || option.optional;
  return {
    short: option.short,
    long: option.long,
    description: firstLine(option.description),
    ...(takesValue && { value: valueOf(option.flags, option.argChoices) }),
  };
}

function argumentValue([argument]: readonly Argument[]): Value {
  return argument === undefined ? { kind: 'free' } : valueOf(`<${argument.name()}>`, argument.argChoices);
}

function valueOf(text: string, choices: readonly string[] | undefined): Value {
  if (choices !== undefined) return { kind: 'words', words: [...choices] };
  return /[<[][^<>[\]]*(file|path|dir|folder)/i.test(text) ? { kind: 'file' } : { kind: 'free' };
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}

/** A text in single quotes, as POSIX shells and zsh read it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
