import { Command } from 'commander';
import type { Context } from './context.ts';
import { addGlobals, type Globals } from './globals.ts';
import type { Io } from './io.ts';
import type { Outcome } from './output/outcome.ts';
import { registerAuth } from './commands/auth.ts';
import { registerCompletion } from './commands/completion.ts';
import { registerConfig } from './commands/config.ts';
import { registerDoctor } from './commands/doctor.ts';
import { registerExitCodes } from './commands/exit-codes.ts';
import { registerJobs } from './commands/jobs/jobs.ts';
import { registerModels } from './commands/models.ts';
import { registerSandbox } from './commands/sandbox/sandbox.ts';
import { registerVideo } from './commands/video/video.ts';
import { version } from './version.ts';

/** What a command does once its flags are read. */
export type Action = (context: Context) => Promise<Outcome | undefined>;

/** Runs an action in a context with the global flags; given to every command when it is registered. */
export type Act = (globals: Globals, action: Action) => Promise<void>;

/** Adds a command (or a group of them) to the program. */
export type Register = (parent: Command, run: Run) => void;

/** Hands a parsed command over to be run. */
export type Run = (command: Command, action: Action) => Promise<void>;

const registers: Register[] = [
  registerVideo,
  registerJobs,
  registerModels,
  registerSandbox,
  registerAuth,
  registerConfig,
  registerDoctor,
  registerCompletion,
  registerExitCodes,
];

/** The whole command line. Heavy modules are loaded by the actions, not here. */
export function createProgram(io: Io, act: Act): Command {
  const program = new Command('mgw');
  program
    .description(
      'Video and speech jobs on a media generation gateway.\nNever pays twice by itself, never loses a handle.',
    )
    .version(version, '-V, --version', 'print the version')
    .helpCommand('help [command]', 'help on a command')
    .showSuggestionAfterError(true)
    .configureOutput({ writeOut: (text) => void io.stdout.write(text), writeErr: () => undefined })
    .configureHelp({ showGlobalOptions: true, sortSubcommands: false })
    .addHelpText('after', examples);
  addGlobals(program);
  const run: Run = (command, action) => act(command.optsWithGlobals<Globals>(), action);
  for (const register of registers) register(program, run);
  for (const command of allCommands(program)) command.exitOverride();
  return program;
}

const examples = `
Examples:
  $ mgw --sandbox video c submit --model vendor-h3-mini --prompt "a paper boat at sea" -o boat.mp4
  $ mgw video c submit --model vendor-h3-mini --prompt "a paper boat at sea" --key boat-1 -o boat.mp4
  $ mgw jobs ls
  $ mgw help exit-codes`;

/** A command and everything below it. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}
