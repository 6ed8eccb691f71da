import { Command, CommanderError } from 'commander';
import type { Act, Register, Run } from './action.ts';
import { addGlobals, type Globals } from './globals.ts';
import { topics } from './help/topics.ts';
import { fitted, helpStyle, pages, type Screen } from './help/format.ts';
import { usageErrorOf } from './usage.ts';
import { version } from '../version.ts';

type Load = () => Promise<Register>;

// In the order of the help. Of these only the one that is named is loaded, where the arguments name one.
const groups: Record<string, Record<string, Load>> = {
  Make: {
    video: async () => (await import('./commands/video/video.ts')).registerVideo,
    tts: async () => (await import('./commands/tts/tts.ts')).registerTts,
    responses: async () => (await import('./commands/responses/responses.ts')).registerResponses,
    batch: async () => (await import('./commands/batch/batch.ts')).registerBatch,
  },
  Jobs: {
    jobs: async () => (await import('./commands/jobs/jobs.ts')).registerJobs,
  },
  Money: {
    spend: async () => (await import('./commands/spend.ts')).registerSpend,
    budget: async () => (await import('./commands/budget.ts')).registerBudget,
  },
  Gateway: {
    models: async () => (await import('./commands/models.ts')).registerModels,
    schema: async () => (await import('./commands/schema.ts')).registerSchema,
    api: async () => (await import('./commands/api/api.ts')).registerApi,
    sandbox: async () => (await import('./commands/sandbox/sandbox.ts')).registerSandbox,
  },
  'Set-up': {
    auth: async () => (await import('./commands/auth/auth.ts')).registerAuth,
    config: async () => (await import('./commands/config.ts')).registerConfig,
    doctor: async () => (await import('./commands/doctor.ts')).registerDoctor,
    completion: async () => (await import('./commands/completion.ts')).registerCompletion,
    help: async () => (await import('./commands/help.ts')).registerHelp,
  },
};
const loaders = Object.entries(groups).flatMap(([group, members]) =>
  Object.entries(members).map(([name, load]) => ({ group, name, load })),
);

// It writes down what every command takes.
const needsAll = new Set(['help']);

// What shells ask when a word is to be completed; of the commands only the one in the words is loaded.
const asking = '__complete';

/** A command line that can be parsed, and what its parser printed by itself: help, or the version. */
export interface Program {
  root: Command;
  printed: () => string;
}

/**
 * The command line for some arguments: all of it, or only the part that they name. Its parser prints nothing and
 * ends nothing: it throws MgwError('usage') for wrong arguments, and CommanderError with exit code 0 after help.
 */
export async function createProgram(argv: readonly string[], act: Act, screens = pages): Promise<Program> {
  let printed = '';
  const take = (text: string, { width }: Screen): void => void (printed += fitted(text, width));
  const root = new Command('mgw')
    .description('Video and speech on a media gateway. Never pays twice, never loses a handle.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help')
    .helpCommand(false)
    .configureOutput({
      writeOut: (text) => take(text, screens.out),
      writeErr: (text) => take(text, screens.err),
      outputError: () => undefined,
      getOutHasColors: () => true,
      getErrHasColors: () => true,
    });
  addGlobals(root);
  const name = firstOperand(root, argv);
  const isOverview = name === undefined && !argv.some((word) => word === '-h' || word === '--help');
  root.configureHelp(helpStyle(screens, isOverview)).addHelpText('after', isOverview ? firstSteps : examples);
  const run: Run = (command, action) => act(command.optsWithGlobals<Globals>(), action);
  const isAsked = name === asking;
  const meant = isAsked ? firstOperand(root, argv.slice(argv.indexOf('--') + 1)) : name;
  for (const { group, register } of await load(meant)) {
    root.commandsGroup(group);
    register(root, run);
  }
  if (name === '__man') (await import('./commands/man.ts')).registerMan(root, run);
  if (isAsked) (await import('./commands/complete.ts')).registerComplete(root, run);
  for (const command of allCommands(root)) endsByThrowing(command);
  return { root, printed: () => printed };
}

function load(name: string | undefined): Promise<{ group: string; register: Register }[]> {
  const named = loaders.filter((one) => one.name === name && !needsAll.has(one.name));
  const needed = named.length === 0 ? loaders : named;
  return Promise.all(needed.map(async ({ group, load }) => ({ group, register: await load() })));
}

// The first word that is neither a flag nor the value of one; the parser judges them all.
function firstOperand(root: Command, argv: readonly string[]): string | undefined {
  const valued = root.options.filter((option) => option.required).map(({ long }) => long);
  for (let at = 0; at < argv.length; at += valued.includes(argv[at]) ? 2 : 1)
    if (argv[at] !== '--' && !argv[at]?.startsWith('-')) return argv[at];
  return undefined;
}

// Whoever types `mgw` alone wants to see what there is; that is no mistake.
function endsByThrowing(command: Command): void {
  command.exitOverride((error) => {
    if (error.code === 'commander.help' && command.parent === null)
      throw new CommanderError(0, error.code, error.message);
    throw error.exitCode === 0 ? error : usageErrorOf(error, command);
  });
}

const firstSteps = `
Try it, offline and free:
  $ mgw --sandbox video c submit "a paper boat" -m vendor-h3-mini -o boat.mp4
Help: mgw COMMAND --help, mgw help TOPIC, mgw --help. Set-up: mgw auth login.`;

const examples = `
Examples:
  $ mgw --sandbox video c submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4
  $ mgw video c submit "a paper boat at sea" -m vendor-h3-mini --key boat-1 -o boat-1.mp4
  $ mgw jobs ls
  $ mgw help resuming

Topics of mgw help: ${topics.map(({ name }) => name).join(', ')}`;

/** A command and everything below it. */
export function allCommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}
