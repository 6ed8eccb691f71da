import type { Argument, Command, Option } from 'commander';
import { typedName, loadAll, readPage } from '../command-tree.ts';
import { isRepeatable } from '../options.ts';
import { tableOf } from './markdown.ts';
import { rules, type Rule } from '../../config/rules.ts';

type Data = Record<string, unknown>;

/**
 * Returns a command's help as data (design 16): its arguments, flags and subcommands. For `mgw` itself, adds the global
 * flags, the environment variables and the exit codes. Loads every command that the data describes.
 */
export async function helpData(command: Command): Promise<Data> {
  await loadAll(command);
  if (command.parent !== null) return { command: commandData(command) };
  const { flags, ...tree } = commandData(command);
  return {
    command: tree,
    global_flags: flags,
    environment: await rowsOfPage('environment', ([variable, meaning]) => ({ variable, meaning })),
    exit_codes: await exitCodeData(),
  };
}

/** Returns the exit codes that the documentation lists. */
export function exitCodeData(): Promise<Data[]> {
  return rowsOfPage('exit-codes', ([code, name, meaning, charged, then]) => ({
    code: Number(code),
    name,
    meaning,
    charged,
    then,
  }));
}

async function rowsOfPage(name: string, toData: (row: string[]) => Data): Promise<Data[]> {
  const [, ...rows] = tableOf(await readPage(`${name}.md`));
  return rows.map(toData);
}

function commandData(command: Command): Data {
  const flags = command.options.filter(({ hidden }) => !hidden);
  const children = command.createHelp().visibleCommands(command);
  return {
    name: typedName(command),
    about: command.description(),
    ...(command.aliases().length > 0 && { aliases: command.aliases() }),
    arguments: command.registeredArguments.map(argumentData),
    flags: flags.map(flagData),
    commands: children.filter((child) => child.parent === command).map(commandData),
  };
}

function argumentData(argument: Argument): Data {
  return {
    name: argument.name(),
    about: argument.description,
    required: argument.required,
    repeatable: argument.variadic,
    default: argument.defaultValue as unknown,
    choices: argument.argChoices,
  };
}

function flagData(option: Option): Data {
  const describedDefault = /\(default (?!that|the)([^()]+)\)/.exec(option.description)?.[1];
  return {
    flag: option.long ?? option.flags,
    short: option.short,
    about: option.description,
    type: typeOf(option),
    value: /<([^<>]+)>/.exec(option.flags)?.[1],
    repeatable: isRepeatable(option),
    default: (option.defaultValue as unknown) ?? describedDefault,
    choices: option.argChoices,
    env: variableOf(option),
  };
}

const typesByValue: Record<string, string> = { n: 'integer', duration: 'duration', amount: 'decimal' };

function typeOf({ flags, argChoices }: Option): string {
  const value = /<([^>.]+)/.exec(flags)?.[1];
  if (value === undefined) return 'boolean';
  return argChoices === undefined ? (typesByValue[value] ?? 'string') : 'choice';
}

function variableOf({ long }: Option): string | undefined {
  const allRules: Rule<unknown>[] = Object.values(rules);
  return allRules.find(({ flag }) => flag?.name === long)?.env ?? otherVariables[long ?? ''];
}

// The environment variables of flags whose settings depend on other settings, and therefore are not in `rules`.
const otherVariables: Record<string, string> = {
  '--profile': 'MGW_PROFILE',
  '--base-url': 'MGW_BASE_URL',
  '--sandbox': 'MGW_SANDBOX',
  '--no-input': 'MGW_NO_INPUT',
};
