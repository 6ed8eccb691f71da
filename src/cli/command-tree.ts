import { type Command, CommanderError, type Option } from 'commander';
import type { Context } from './context.ts';
import type { Globals } from './options.ts';
import type { Outcome } from './output/outcome.ts';
import { usageError } from '../errors.ts';
import { readPackageFile } from '../installation.ts';

/** The action of a command. Runs after the command's flags are parsed. */
export type Action = (context: Context) => Promise<Outcome | undefined>;

/** Runs the given action in a context created from the global flags. */
export type RunAction = (globals: Globals, action: Action, kind?: ActionKind) => Promise<void>;

/** Runs the given action of a command that has been parsed. */
export type Run = (command: Command, action: Action, kind?: ActionKind) => Promise<void>;

/** `runs jobs` if the action's outcome, or its error, is reported to a workflow. */
export type ActionKind = 'runs jobs' | undefined;

/** Adds a command's arguments, flags and action, or a group's subcommands. */
export type Register = (parent: Command, run: Run) => void;

/** A command as listed in its parent's help. Its flags and arguments are loaded when the command is used. */
export interface ListedCommand {
  about: string;
  load: () => Promise<Register>;
  /** The heading under which the help lists the command. */
  group?: string;
  hidden?: boolean;
}

const pendingLoads = new WeakMap<Command, () => Promise<void>>();

/** A parser error, and the command in which it occurred. */
export class ParserError extends Error {
  constructor(
    readonly command: Command,
    readonly commanderError: CommanderError,
  ) {
    super(commanderError.message);
  }
}

/**
 * Adds subcommands by name and description, and a hidden `help` if there is none. Loads only the command that the
 * command line uses.
 */
export function addCommands(group: Command, run: Run, commands: Record<string, ListedCommand>): void {
  for (const [name, { about, load, group: title, hidden }] of Object.entries(commands)) {
    if (title !== undefined) group.commandsGroup(title);
    const command = group.command(name, { hidden }).description(about);
    pendingLoads.set(command, async () => (await load())(command, run));
  }
  // The parser's own help command would print the help of a command that is not loaded.
  if (commands['help'] === undefined)
    group
      .command('help', { hidden: true })
      .argument('[command...]')
      .action(async (path: string[]) => (await loadNested(group, path)).help());
  group.hook('preSubcommand', (_group, command) => loadCommand(command));
}

/** Loads a command's flags, arguments and subcommand names. */
export async function loadCommand(command: Command): Promise<void> {
  const load = pendingLoads.get(command);
  pendingLoads.delete(command);
  await load?.();
  for (const each of allCommands(command)) throwInsteadOfExit(each);
}

/** Loads a command and all its subcommands. */
export async function loadAll(command: Command): Promise<void> {
  await loadCommand(command);
  for (const child of command.commands) await loadAll(child);
}

/** Loads the nested commands named in `words`, and returns the innermost one. Skips all other words. */
export async function loadNested(command: Command, words: readonly string[]): Promise<Command> {
  await loadCommand(command);
  for (const [index, word] of words.entries()) {
    const child = childOf(command, word);
    if (child !== undefined) return loadNested(child, words.slice(index + 1));
  }
  return command;
}

/** Returns the direct subcommand with the given name or alias; undefined if there is none. */
export function childOf(command: Command, name: string): Command | undefined {
  return command.commands.find((child) => child.name() === name || child.aliases().includes(name));
}

/** Returns the root of the command tree. */
export function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent);
}

/** Returns the given command and its loaded subcommands at every depth. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}

// Makes the parser throw instead of exiting. `mgw` without arguments prints the overview, which is not an error.
function throwInsteadOfExit(command: Command): void {
  command.exitOverride((error) => {
    if (error.code === 'commander.help' && command.parent === null)
      throw new CommanderError(0, error.code, error.message);
    throw error.exitCode === 0 ? error : new ParserError(command, error);
  });
}

/** Returns the visible flags of a command and its parents. */
export function optionsOf(command: Command): Option[] {
  const ownOptions = command.options.filter(({ hidden }) => !hidden);
  return command.parent === null ? ownOptions : [...ownOptions, ...optionsOf(command.parent)];
}

/** Returns the words that follow `mgw` in the name of a command, such as `['video', 'c', 'submit']`. */
export function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

/** Returns a command as the user types it: `mgw video c submit`. */
export function typedName(command: Command): string {
  return ['mgw', ...pathOf(command)].join(' ');
}

/** A topic of `mgw help`: a page of the packaged documentation. */
export interface Topic {
  name: string;
  about: string;
  /** The page's file name in `docs/`. */
  page: string;
}

/** The topics, in the order of `mgw help`. */
export const topics: readonly Topic[] = [
  topic('resuming', 'running a command again; what to do after a lost response'),
  topic('scripting', 'command lines that are safe to repeat'),
  topic('batch', 'many jobs from one file', 'batches'),
  topic('fleet', 'one batch on many machines: a shared ledger, a queue and its workers'),
  topic('budgets', 'spending limits, and how spending is counted'),
  topic('sandbox', 'a built-in gateway for tests'),
  topic('agents', 'let an agent make videos and speech, under a budget'),
  topic('refs', 'ways to refer to a job'),
  topic('output', 'what goes to stdout, and what --json prints'),
  topic('exit-codes', 'what the exit codes mean'),
  topic('environment', 'variables, profiles and the config file'),
];

function topic(name: string, about: string, page = name): Topic {
  return { name, about, page: `${page}.md` };
}

/**
 * Reads a file of the packaged documentation.
 * @param page the file's path below `docs/`
 * @throws MgwError('usage') if there is no such file.
 */
export async function readPage(page: string): Promise<string> {
  return readPackageFile(`docs/${page}`).catch(() => {
    throw usageError(`There is no page ${page} in the documentation.`, ['mgw', 'help']);
  });
}
