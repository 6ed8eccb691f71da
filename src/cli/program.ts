import { Command, type Option } from 'commander';
import {
  type RunAction,
  addCommands,
  childOf,
  type ListedCommand,
  ParserError,
  loadCommand,
  loadAll,
  type Run,
  topics,
} from './command-tree.ts';
import { addGlobals, type Globals } from './options.ts';
import { fitHelp, helpStyle, pageScreens, type Screen } from './help/format.ts';
import { usageErrorOf } from './usage.ts';
import { version } from '../installation.ts';

// The commands, in the order of `mgw help`.
const commands: Record<string, ListedCommand> = {
  video: {
    group: 'Make',
    about: 'make a video; the model determines the protocol',
    load: async () => (await import('./commands/video/video.ts')).registerVideo,
  },
  tts: {
    group: 'Make',
    about: 'turn text into speech',
    load: async () => (await import('./commands/tts/tts.ts')).registerTts,
  },
  responses: {
    group: 'Make',
    about: 'ask a text model',
    load: async () => (await import('./commands/responses/responses.ts')).registerResponses,
  },
  batch: {
    group: 'Make',
    about: 'run many jobs from one file, each paid for once',
    load: async () => (await import('./commands/batch/batch.ts')).registerBatch,
  },
  worker: {
    group: 'Make',
    about: 'run the rows of enqueued batches, on any machine',
    load: async () => (await import('./commands/worker.ts')).registerWorker,
  },
  jobs: {
    group: 'Jobs',
    about: 'list, wait for, save and manage jobs',
    load: async () => (await import('./commands/jobs/jobs.ts')).registerJobs,
  },
  spend: {
    group: 'Money',
    about: 'show the cost of your jobs',
    load: async () => (await import('./commands/spend.ts')).registerSpend,
  },
  budget: {
    group: 'Money',
    about: 'set spending limits',
    load: async () => (await import('./commands/budget.ts')).registerBudget,
  },
  models: {
    group: 'Gateway',
    about: 'list the models your key can use',
    load: async () => (await import('./commands/models.ts')).registerModels,
  },
  schema: {
    group: 'Gateway',
    about: 'print the JSON Schema of a body or a batch',
    load: async () => (await import('./commands/schema.ts')).registerSchema,
  },
  api: {
    group: 'Gateway',
    about: 'make a raw call to the gateway',
    load: async () => (await import('./commands/api/api.ts')).registerApi,
  },
  mcp: {
    group: 'Agents',
    about: 'serve agents through the Model Context Protocol',
    load: async () => (await import('./commands/mcp.ts')).registerMcp,
  },
  skill: {
    group: 'Agents',
    about: 'install a skill that explains mgw to agents',
    load: async () => (await import('./commands/skill.ts')).registerSkill,
  },
  sandbox: {
    group: 'Gateway',
    about: 'test with a built-in gateway, offline and free',
    load: async () => (await import('./commands/sandbox/sandbox.ts')).registerSandbox,
  },
  auth: {
    group: 'Setup',
    about: 'store, check or remove the API key',
    load: async () => (await import('./commands/auth/auth.ts')).registerAuth,
  },
  config: {
    group: 'Setup',
    about: 'show and change settings',
    load: async () => (await import('./commands/config.ts')).registerConfig,
  },
  store: {
    group: 'Setup',
    about: 'list and remove uploaded input files',
    load: async () => (await import('./commands/store.ts')).registerStore,
  },
  state: {
    group: 'Setup',
    about: 'set up a shared ledger on PostgreSQL',
    load: async () => (await import('./commands/state.ts')).registerState,
  },
  doctor: {
    group: 'Setup',
    about: 'check the setup, free of charge',
    load: async () => (await import('./commands/doctor.ts')).registerDoctor,
  },
  completion: {
    group: 'Setup',
    about: 'print a completion script for a shell',
    load: async () => (await import('./commands/completion.ts')).registerCompletion,
  },
  help: {
    group: 'Setup',
    about: 'show help for a command or a topic',
    load: async () => (await import('./commands/help.ts')).registerHelp,
  },
  // Hidden commands that the build and the completion scripts run.
  __man: {
    about: '',
    hidden: true,
    load: async () => (await import('./commands/man.ts')).registerMan,
  },
  __complete: {
    about: '',
    hidden: true,
    load: async () => (await import('./commands/complete.ts')).registerComplete,
  },
};

/** A command line to be parsed, and the parser's output: help, or the version. */
export interface Program {
  root: Command;
  /** Runs the command line. @throws MgwError('usage') for invalid arguments, CommanderError after help. */
  run: () => Promise<void>;
  parserOutput: () => string;
  /** The command whose help was requested; undefined for the overview of `mgw` alone. */
  helpTarget: () => Command | undefined;
}

/**
 * Creates the program for a command line, without loading a command. The parser neither prints nor ends the process.
 */
export function createProgram(argv: readonly string[], act: RunAction, screens = pageScreens): Program {
  let outputText = '';
  const appendText = (text: string, { width }: Screen): void => void (outputText += fitHelp(text, width));
  const root = new Command('mgw')
    .description('Video and speech on a media gateway. Never pays twice, never loses a handle.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help')
    .helpCommand(false)
    .enablePositionalOptions()
    .configureOutput({
      writeOut: (text) => appendText(text, screens.out),
      writeErr: (text) => appendText(text, screens.err),
      outputError: () => undefined,
      getOutHasColors: () => true,
      getErrHasColors: () => true,
    });
  addGlobals(root);
  let helpCommand: Command | undefined;
  root.on('beforeAllHelp', ({ command }: { command: Command }) => void (helpCommand = command));
  const name = firstOperand(root, argv);
  const isAll = wordsBeforeDashes(argv).includes('--help-all');
  const isOverview = name === undefined && !isAll && !argv.some((word) => word === '-h' || word === '--help');
  const extent = isOverview ? 'overview' : isAll ? 'all' : 'first';
  root
    .configureHelp(helpStyle(screens, extent))
    .addHelpText('after', isOverview ? firstSteps : examplesOf(isAll));
  const run: Run = (command, action, kind) => {
    const globals = command.optsWithGlobals<Globals>();
    const isDryRun = command.getOptionValue('dryRun') === true;
    const allGlobals = globals.fields === undefined ? globals : { ...globals, json: true };
    return act(allGlobals, action, isDryRun ? undefined : kind);
  };
  addCommands(root, run, commands);
  return {
    root,
    run: () => parse(root, argv),
    parserOutput: () => outputText,
    helpTarget: () => (isOverview ? undefined : helpCommand),
  };
}

async function parse(root: Command, argv: readonly string[]): Promise<void> {
  await loadCommand(root);
  try {
    await root.parseAsync(await withGlobalsFirst(root, argv), { from: 'user' });
  } catch (error) {
    if (!(error instanceof ParserError)) throw error;
    const { command, commanderError } = error;
    // Loads all commands, because the word may be a subcommand of another command.
    if (commanderError.code === 'commander.unknownCommand') await loadAll(root);
    throw usageErrorOf(commanderError, command);
  }
}

// Moves the global flags to the front, where the parser requires them (`enablePositionalOptions`). By default, the parser
// would also find them in the values of other flags: `--prompt --verbose` would be sent with the next word as its prompt.
async function withGlobalsFirst(root: Command, argv: readonly string[]): Promise<string[]> {
  const [globals, others]: [string[], string[]] = [[], []];
  let command = root;
  let isInPath = true;
  for (let at = 0; at < argv.length; at += 1) {
    const word = argv[at] ?? '';
    if (word === '--') return [...globals, ...others, ...argv.slice(at)];
    if (!word.startsWith('-') || word === '-') {
      const child: Command | undefined = isInPath ? childOf(command, word) : undefined;
      if (child !== undefined) await loadCommand((command = child));
      isInPath &&= child !== undefined;
      others.push(word);
      continue;
    }
    const options = [...root.options, ...command.options];
    for (const flag of flagsIn(word, options)) {
      const option = optionOf(flag, options);
      const isGlobal = option !== undefined && root.options.includes(option);
      isInPath &&= isGlobal;
      const words = isGlobal ? globals : others;
      words.push(flag === '--help-all' ? '--help' : flag);
      if (option?.required !== true || !/^(-[^-]|--[^=]*)$/.test(flag)) continue;
      at += 1;
      if (isGlobal && at === argv.length) return globals;
      words.push(...argv.slice(at, at + 1));
    }
  }
  return [...globals, ...others];
}

// Splits a group of short flags, such as `-qo FILE`. A word with an unknown letter is not a group.
function flagsIn(word: string, options: readonly Option[]): string[] {
  const flags: string[] = [];
  for (let index = 1; index < word.length && !word.startsWith('--'); index += 1) {
    const flag = `-${word.charAt(index)}`;
    const option = optionOf(flag, options);
    if (option === undefined) return [word];
    if (!option.isBoolean()) return [...flags, `-${word.slice(index)}`];
    flags.push(flag);
  }
  return flags.length === 0 ? [word] : flags;
}

// Returns the option of a flag, which may contain the option's value.
function optionOf(flag: string, options: readonly Option[]): Option | undefined {
  if (flag.startsWith('--')) return options.find(({ long }) => long === flag.split('=', 1)[0]);
  const option = options.find(({ short }) => short === flag.slice(0, 2));
  return flag.length === 2 || option?.isBoolean() === false ? option : undefined;
}

/** Returns the words before `--`. The words after `--` are text, not flags. */
export function wordsBeforeDashes(argv: readonly string[]): readonly string[] {
  const end = argv.indexOf('--');
  return end === -1 ? argv : argv.slice(0, end);
}

// Returns the first word that is neither a flag nor a flag's value. The parser checks the words later.
function firstOperand(root: Command, argv: readonly string[]): string | undefined {
  const flagsWithValue = root.options.filter((option) => option.required).map(({ long }) => long);
  for (let at = 0; at < argv.length; at += flagsWithValue.includes(argv[at]) ? 2 : 1)
    if (argv[at] !== '--' && !argv[at]?.startsWith('-')) return argv[at];
  return undefined;
}

const firstSteps = `
Try it, offline and free:
  $ mgw --sandbox video submit "a paper boat" -m vendor-h3-mini -o boat.mp4
Help: mgw COMMAND --help, mgw help TOPIC, mgw --help. Setup: mgw auth login.`;

function examplesOf(isAll: boolean): string {
  const names = topics.map(({ name }) => name).filter((name) => isAll || name !== 'fleet');
  return `
Examples:
  $ mgw --sandbox video submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4
  $ mgw video submit "a paper boat at sea" -m vendor-h3-mini --key boat-1 -o boat-1.mp4
  $ mgw jobs ls
  $ mgw help resuming

Help topics (mgw help TOPIC): ${names.join(', ')}`;
}
