import type { Command, CommanderError } from 'commander';
import { usageError, type MgwError } from '../errors.ts';
import { allCommands, loadNested, pathOf, typedName } from './command-tree.ts';

/** Converts a parser error to an mgw error, which names the flag or argument and suggests the help. */
export function usageErrorOf(error: CommanderError, command: Command): MgwError {
  const [text = '', suggestion] = error.message.replace(/^error: /, '').split('\n');
  const hint = /^\(Did you mean ([^]*\?)\)/.exec(suggestion ?? '')?.[1];
  const quoted = /'([^]*)'/.exec(text)?.[1] ?? '';
  switch (error.code) {
    case 'commander.help':
      return errorWithHelp(command, `${typedName(command)} needs a command: ${commandNames(command)}.`);
    case 'commander.unknownCommand':
      return unknownCommand(command, quoted, hint);
    case 'commander.unknownOption':
      return unknownFlag(command, quoted, hint);
    case 'commander.optionMissingArgument':
      return errorWithHelp(command, `${quoted.replace(/^-\w, /, '')} needs a value.`);
    case 'commander.missingArgument':
      return missingArgument(command, quoted);
    case 'commander.excessArguments':
      return excessArguments(command);
    case 'commander.invalidArgument':
      return invalidArgument(command, text);
    default:
      return errorWithHelp(command, text);
  }
}

// Commands of similar programs, with mgw's equivalents.
const commandEquivalents = new Map<string, [advice: string, next: string]>([
  ['version', ['Run mgw --version.', 'mgw --version']],
  ['whoami', ['Run mgw auth status.', 'mgw auth status']],
  ['login', ['Run mgw auth login.', 'mgw auth login']],
  [
    'balance',
    ['The gateway does not report the balance; mgw spend shows the cost of your jobs.', 'mgw spend'],
  ],
  ['cancel', ['The gateway cannot cancel a task.', 'mgw jobs ls']],
  [
    'open',
    ['Run mgw jobs gallery, or add --open to the command that saves the file.', 'mgw jobs gallery --open'],
  ],
  [
    'voices',
    ['The gateway does not list its voices. To choose one: mgw tts --speaker NAME.', 'mgw tts --help'],
  ],
]);

// Flags of similar programs, with mgw's equivalents.
const flagEquivalents = new Map([
  ['--voice', '--speaker'],
  ['--output-file', '--output'],
  ['--out', '--output'],
  ['--ratio', '--aspect-ratio'],
  ['--aspect', '--aspect-ratio'],
  ['--seconds', '--duration'],
  ['--length', '--duration'],
  ['--size', '--resolution'],
  ['--negative', '--negative-prompt'],
  ['--image', '--first-frame'],
]);

/**
 * Creates the error for an unknown command. The error suggests the nearest command (`hint`, such as `submit?`), or
 * lists all commands.
 * @param next the corrected command, if there is a `hint`
 */
export function unknownCommand(parent: Command, name: string, hint?: string, next?: string[]): MgwError {
  const subject = parent.parent === null ? 'There is' : `${typedName(parent)} has`;
  const elsewhere = allCommands(parent).filter((command) => command !== parent && command.name() === name);
  const equivalent = commandEquivalents.get(name);
  const help =
    equivalent !== undefined
      ? equivalent[0]
      : elsewhere.length > 0
        ? `Did you mean ${elsewhere.map(typedName).join(', ')}?`
        : hint === undefined
          ? `Available: ${commandNames(parent)}.`
          : `Did you mean ${hint}`;
  const message = `${subject} no command ${quoteIfNeeded(name)}. ${help}`;
  if (equivalent !== undefined) return usageError(message, equivalent[1].split(' '));
  return next !== undefined && elsewhere.length === 0
    ? usageError(message, next)
    : errorWithHelp(parent, message);
}

function unknownFlag(command: Command, word: string, hint: string | undefined): MgwError {
  const [flag = ''] = word.split('=', 1);
  if (/\s/.test(flag))
    return errorWithHelp(
      command,
      `${quoteIfNeeded(word)} looks like a flag. Put text that begins with - after --.`,
    );
  const equivalent = flagEquivalents.get(flag);
  const isSupported = command.options.some(({ long }) => long === equivalent);
  const suggestion = equivalent !== undefined && isSupported ? `${equivalent}?` : hint;
  const hasRows = command.options.some(({ long }) => long === '--default');
  const field = hasRows ? ' For a field of every row: -d NAME=VALUE, such as -d model=vendor-h3.' : '';
  if (['--file', '--prompt-file'].includes(flag) && command.options.some(({ long }) => long === '--prompt')) {
    const advice = `To read the prompt from a file: ${typedName(command)} - < FILE`;
    return errorWithHelp(command, `${typedName(command)} has no flag ${flag}. ${advice}`);
  }
  const help = suggestion === undefined ? field : ` Did you mean ${suggestion}`;
  return errorWithHelp(command, `${typedName(command)} has no flag ${quoteIfNeeded(flag)}.${help}`);
}

function missingArgument(command: Command, name: string): MgwError {
  const argument = command.registeredArguments.find((one) => one.name() === name);
  const term = `<${name}${argument?.variadic ? '...' : ''}>`;
  const description = argument?.description ? `: ${argument.description}` : '';
  return errorWithHelp(command, `${typedName(command)} needs ${term}${description}.`);
}

function invalidArgument(command: Command, text: string): MgwError {
  const [, value = '', name, choices] =
    /^command-argument value '([^]*)' is invalid for argument '(.*?)'\. Allowed choices are (.*)\.$/.exec(
      text,
    ) ?? [];
  if (choices === undefined) return errorWithHelp(command, text);
  return errorWithHelp(command, `<${name ?? ''}> ${quoteIfNeeded(value)}: must be one of ${choices}.`);
}

function excessArguments(command: Command): MgwError {
  const maxCount = command.registeredArguments.length;
  const allowed = ['no argument', 'one argument'][maxCount] ?? `${maxCount} arguments`;
  // If the first argument is optional, it is free text that may need quotes. REFs are required arguments.
  const isText = command.registeredArguments[0]?.required === false;
  // The parser leaves a flag among the arguments only after --.
  const hasFlag = command.args.some((word) => /^-{1,2}[a-z]/i.test(word));
  const advice = hasFlag ? ' Put flags before --.' : isText ? ' Put text with spaces in quotes.' : '';
  const received = command.args.map(quoteIfNeeded).join(' ');
  return errorWithHelp(command, `${typedName(command)} takes ${allowed} but got ${received}.${advice}`);
}

function errorWithHelp(command: Command, message: string): MgwError {
  return usageError(message, ['mgw', ...pathOf(command), '--help']);
}

/** Returns the command line that prints the help of the command in `argv`. */
export async function helpOf(root: Command, argv: readonly string[]): Promise<string[]> {
  return ['mgw', ...pathOf(await loadNested(root, argv)), '--help'];
}

function commandNames(command: Command): string {
  const visible = command.createHelp().visibleCommands(command);
  return visible.map((one) => one.name()).join(', ');
}

function quoteIfNeeded(word: string): string {
  return /^[\w./@:-]+$/.test(word) ? word : JSON.stringify(word);
}
