import { type Command, CommanderError } from 'commander';
import type { Context } from './context.ts';
import type { Globals } from './options.ts';
import type { Outcome } from './output/outcome.ts';

/** What a command does once its flags are read. */
export type Action = (context: Context) => Promise<Outcome | undefined>;

/** Runs an action in a context with the global flags; given to every command when it is registered. */
export type Act = (globals: Globals, action: Action) => Promise<void>;

/** Hands a parsed command over to be run. */
export type Run = (command: Command, action: Action) => Promise<void>;

/** Adds a command (or a group of them) to the program. */
export type Register = (parent: Command, run: Run) => void;

/** A command as the help above it lists it. The rest of it is loaded when it is reached. */
export interface Listed {
  about: string;
  load: () => Promise<Register>;
  /** The heading that it is listed under. */
  group?: string;
  hidden?: boolean;
}

const unread = new WeakMap<Command, () => Promise<void>>();

/** A complaint of the parser, and the command that it is about. */
export class Misuse extends Error {
  constructor(
    readonly command: Command,
    readonly complaint: CommanderError,
  ) {
    super(complaint.message);
  }
}

/** Adds commands below one, each by its name and description: a command line loads only the command that it names. */
export function list(group: Command, run: Run, commands: Record<string, Listed>): void {
  for (const [name, { about, load, group: title, hidden }] of Object.entries(commands)) {
    if (title !== undefined) group.commandsGroup(title);
    const command = group.command(name, { hidden }).description(about);
    unread.set(command, async () => (await load())(command, run));
  }
  group.hook('preSubcommand', (_group, command) => read(command));
}

/** Loads a command: its flags, its arguments, and the names of those below it. */
export async function read(command: Command): Promise<void> {
  const load = unread.get(command);
  unread.delete(command);
  await load?.();
  for (const one of allCommands(command)) endsByThrowing(one);
}

/** Loads a command and everything below it. */
export async function readAll(command: Command): Promise<void> {
  await read(command);
  for (const one of command.commands) await readAll(one);
}

/** Loads the commands that some words name, one below the other, and gives the last; other words are passed over. */
export async function reach(command: Command, words: readonly string[]): Promise<Command> {
  await read(command);
  for (const [index, word] of words.entries()) {
    const child = childOf(command, word);
    if (child !== undefined) return reach(child, words.slice(index + 1));
  }
  return command;
}

/** The command of a name or alias directly below another. */
export function childOf(command: Command, name: string): Command | undefined {
  return command.commands.find((one) => one.name() === name || one.aliases().includes(name));
}

/** The program that a command is part of. */
export function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent);
}

/** A command and everything below it, as far as it has been loaded. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}

// `mgw` alone asks for an overview; it is not a mistake.
function endsByThrowing(command: Command): void {
  command.exitOverride((error) => {
    if (error.code === 'commander.help' && command.parent === null)
      throw new CommanderError(0, error.code, error.message);
    throw error.exitCode === 0 ? error : new Misuse(command, error);
  });
}
