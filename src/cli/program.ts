import { Command } from 'commander';
import type { Act, Register, Run } from './action.ts';
import { addGlobals, type Globals } from './globals.ts';
import { helpStyle } from './output/help.ts';
import { usageErrorOf } from './usage.ts';
import { version } from '../version.ts';

// In the order of the help. Of these only the one that is named is loaded, where the arguments name one.
const loaders: Record<string, () => Promise<Register>> = {
  video: async () => (await import('./commands/video/video.ts')).registerVideo,
  jobs: async () => (await import('./commands/jobs/jobs.ts')).registerJobs,
  batch: async () => (await import('./commands/batch/batch.ts')).registerBatch,
  budget: async () => (await import('./commands/budget.ts')).registerBudget,
  spend: async () => (await import('./commands/spend.ts')).registerSpend,
  tts: async () => (await import('./commands/tts/tts.ts')).registerTts,
  schema: async () => (await import('./commands/schema.ts')).registerSchema,
  models: async () => (await import('./commands/models.ts')).registerModels,
  responses: async () => (await import('./commands/responses/responses.ts')).registerResponses,
  api: async () => (await import('./commands/api/api.ts')).registerApi,
  sandbox: async () => (await import('./commands/sandbox/sandbox.ts')).registerSandbox,
  auth: async () => (await import('./commands/auth.ts')).registerAuth,
  config: async () => (await import('./commands/config.ts')).registerConfig,
  doctor: async () => (await import('./commands/doctor.ts')).registerDoctor,
  completion: async () => (await import('./commands/completion.ts')).registerCompletion,
  help: async () => (await import('./commands/help.ts')).registerHelp,
};

// They write down what every command takes.
const needsAll = new Set(['completion', 'help']);

/** A command line that can be parsed, and what its parser printed by itself: help, or the version. */
export interface Program {
  root: Command;
  printed: () => string;
}

/**
 * The command line for some arguments: all of it, or only the part that they name. Its parser prints nothing and
 * ends nothing: it throws MgwError('usage') for wrong arguments, and CommanderError with exit code 0 after help.
 */
export async function createProgram(argv: readonly string[], act: Act): Promise<Program> {
  let printed = '';
  const take = (text: string): void => void (printed += text);
  const root = new Command('mgw')
    .description(
      'Video and speech jobs on a media generation gateway.\nNever pays twice by itself, never loses a handle.',
    )
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help')
    .helpCommand(false)
    .configureOutput({ writeOut: take, writeErr: take, outputError: () => undefined })
    .configureHelp(helpStyle)
    .addHelpText('after', examples);
  addGlobals(root);
  const run: Run = (command, action) => act(command.optsWithGlobals<Globals>(), action);
  for (const register of await Promise.all(needed(root, argv).map((load) => load()))) register(root, run);
  for (const command of allCommands(root)) endsByThrowing(command);
  return { root, printed: () => printed };
}

function needed(root: Command, argv: readonly string[]): (() => Promise<Register>)[] {
  const name = firstOperand(root, argv);
  const named = name === undefined || needsAll.has(name) ? undefined : loaders[name];
  return named === undefined ? Object.values(loaders) : [named];
}

// The first word that is neither a flag nor the value of one; the parser judges them all.
function firstOperand(root: Command, argv: readonly string[]): string | undefined {
  const valued = root.options.filter((option) => option.required).map(({ long }) => long);
  for (let at = 0; at < argv.length; at += valued.includes(argv[at]) ? 2 : 1)
    if (argv[at] !== '--' && !argv[at]?.startsWith('-')) return argv[at];
  return undefined;
}

function endsByThrowing(command: Command): void {
  command.exitOverride((error) => {
    throw error.exitCode === 0 ? error : usageErrorOf(error, command);
  });
}

const examples = `
Examples:
  $ mgw --sandbox video c submit "a paper boat at sea" --model vendor-h3-mini -o boat.mp4
  $ mgw video c submit "a paper boat at sea" --model vendor-h3-mini --key boat-1 -o boat-1.mp4
  $ mgw jobs ls
  $ mgw help exit-codes`;

/** A command and everything below it. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}
