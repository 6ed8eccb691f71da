import { type Command, CommanderError, type Option } from 'commander';
import type { Context } from './context.ts';
import type { Globals } from './options.ts';
import type { Outcome } from './output/outcome.ts';
import { usageError } from '../errors.ts';
import { readPackageFile } from '../installation.ts';

/** The action of a command, once its flags are parsed. */
export type Action = (context: Context) => Promise<Outcome | undefined>;

/** Runs an action in a context with the global flags. */
export type Act = (globals: Globals, action: Action) => Promise<void>;

/** Runs a parsed command. */
export type Run = (command: Command, action: Action) => Promise<void>;

/** Adds a command (or a group of them) to the program. */
export type Register = (parent: Command, run: Run) => void;

/** A command as its parent's help lists it. The rest is loaded when the command is used. */
export interface ListedCommand {
  about: string;
  load: () => Promise<Register>;
  /** The heading above the command in the help. */
  group?: string;
  hidden?: boolean;
}

const unread = new WeakMap<Command, () => Promise<void>>();

/** An error of the parser, and the command that it belongs to. */
export class Misuse extends Error {
  constructor(
    readonly command: Command,
    readonly complaint: CommanderError,
  ) {
    super(complaint.message);
  }
}

/** Adds subcommands by name and description. A command line loads only the command that it names. */
export function list(group: Command, run: Run, commands: Record<string, ListedCommand>): void {
  for (const [name, { about, load, group: title, hidden }] of Object.entries(commands)) {
    if (title !== undefined) group.commandsGroup(title);
    const command = group.command(name, { hidden }).description(about);
    unread.set(command, async () => (await load())(command, run));
  }
  group.hook('preSubcommand', (_group, command) => read(command));
}

/** Loads a command: its flags, its arguments, and the names of its subcommands. */
export async function read(command: Command): Promise<void> {
  const load = unread.get(command);
  unread.delete(command);
  await load?.();
  for (const one of allCommands(command)) endsByThrowing(one);
}

/** Loads a command and all its subcommands. */
export async function readAll(command: Command): Promise<void> {
  await read(command);
  for (const one of command.commands) await readAll(one);
}

/** Loads the nested commands that the words name, and returns the innermost. Other words are skipped. */
export async function reach(command: Command, words: readonly string[]): Promise<Command> {
  await read(command);
  for (const [index, word] of words.entries()) {
    const child = childOf(command, word);
    if (child !== undefined) return reach(child, words.slice(index + 1));
  }
  return command;
}

/** Returns the direct subcommand with a name or alias. */
export function childOf(command: Command, name: string): Command | undefined {
  return command.commands.find((one) => one.name() === name || one.aliases().includes(name));
}

/** Returns the program that a command belongs to. */
export function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent);
}

/** Returns a command and its loaded subcommands, at any depth. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}

// Makes the parser throw instead of exit. `mgw` without arguments prints the overview, which is not an error.
function endsByThrowing(command: Command): void {
  command.exitOverride((error) => {
    if (error.code === 'commander.help' && command.parent === null)
      throw new CommanderError(0, error.code, error.message);
    throw error.exitCode === 0 ? error : new Misuse(command, error);
  });
}

/** Returns the visible flags of a command and of its parents. */
export function optionsOf(command: Command): Option[] {
  const own = command.options.filter(({ hidden }) => !hidden);
  return command.parent === null ? own : [...own, ...optionsOf(command.parent)];
}

/** Returns the words of a command after `mgw`: `['video', 'c', 'submit']`. */
export function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

/** A topic of `mgw help`: a page of the documentation in the package. */
export interface Topic {
  name: string;
  about: string;
  /** The name of the page's file in `docs/`. */
  page: string;
}

/** The topics, in the order of the help. */
export const topics: readonly Topic[] = [
  topic('resuming', 'running a command again; what to do after a lost response'),
  topic('scripting', 'command lines that are safe to repeat'),
  topic('batch', 'many jobs from one file', 'batches'),
  topic('fleet', 'one batch on many machines: a shared ledger, a queue and its workers'),
  topic('budgets', 'what may be spent, and how it is counted'),
  topic('sandbox', 'a gateway to try and test with'),
  topic('agents', 'let an agent make videos and speech, under a budget'),
  topic('refs', 'ways to name a job'),
  topic('output', 'what is on stdout, and what --json prints'),
  topic('exit-codes', 'what the exit codes mean'),
  topic('environment', 'variables, profiles and the config file'),
];

function topic(name: string, about: string, page = name): Topic {
  return { name, about, page: `${page}.md` };
}

/**
 * Reads a file of the package's documentation.
 * @param page the path of the file below `docs/`
 * @throws MgwError('usage') if there is no such file.
 */
export async function readPage(page: string): Promise<string> {
  return readPackageFile(`docs/${page}`).catch(() => {
    throw usageError(`There is no page ${page} in the documentation.`, ['mgw', 'help']);
  });
}
