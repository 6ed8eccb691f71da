import { recordedBudget } from '../../budget/budget.ts';
import { add, formatDecimal, parseDecimal } from '../../decimal.ts';
import type { ErrorCode, MgwError } from '../../errors.ts';
import { alternativeOutput, chmodCommand } from '../../flows/next.ts';
import type { JobKind } from '../../job.ts';
import { fetchCommand } from '../../jobs/errors.ts';
import { shellWord } from './human.ts';

/** The facts that determine the next command if the error does not contain one. */
export interface Hint {
  /** The command line as it was typed, without `mgw`. */
  argv: readonly string[];
  /** The command line that prints the help of the typed command. */
  help: string[];
  /** The job that the error is about. */
  job?: { id: string; protocol: JobKind };
  /** The names of all protocols, if the error lists some. */
  protocolNames: readonly string[];
}

const byCode: Partial<Record<ErrorCode, string[]>> = {
  config: ['mgw', 'doctor'],
  auth: ['mgw', 'auth', 'status'],
  not_found: ['mgw', 'models'],
  rate_limited: ['mgw', 'doctor'],
  server_error: ['mgw', 'doctor'],
  unreachable: ['mgw', 'doctor'],
  bad_reply: ['mgw', 'doctor'],
};

/** Returns the error with the next command (design 2), if there is a helpful one. */
export function withHint(error: MgwError, { argv, help, job, protocolNames }: Hint): MgwError {
  const [choice, ...others] = commandsByProtocol(error, argv, protocolNames);
  if (choice !== undefined && others.length > 0) return withChoices(error, [choice, ...others]);
  const corrected = choice ?? correctedCommand(error, argv);
  if (corrected !== undefined) return error.with({ next: ['mgw', ...corrected] });
  const withFile = commandReadingFile(error, argv);
  if (withFile !== undefined) return error.with({ next: withFile });
  if (error.next !== undefined) return error;
  const unpaidNext: Partial<Record<ErrorCode, string[]>> = {
    usage: help,
    output_exists: help,
    local_io: chmodCommand(error) ?? ['mgw', 'doctor'],
  };
  const correction = error.charged === 'no' ? unpaidNext[error.code] : undefined;
  const showJob = job && ['mgw', 'jobs', 'show', job.id];
  const fetchJob = job && error.retry === 'resume' && job.protocol !== 'tts' ? fetchCommand(job) : undefined;
  const next = fetchJob ?? correction ?? byCode[error.code] ?? showJob;
  // Do not suggest the command that has just failed.
  return next === undefined || `${next.join(' ')} --help` === help.join(' ') ? error : error.with({ next });
}

// Returns the typed command with its wrong or missing flag or argument corrected; undefined if none caused it.
function correctedCommand(error: MgwError, argv: readonly string[]): string[] | undefined {
  const { charged, budget, next, lacks, correction, argument } = error;
  const end = optionsEnd(argv);
  if (lacks !== undefined) return [...argv.slice(0, end), ...lacks, ...argv.slice(end)];
  if (correction !== undefined) return withCorrectedFlag(argv, correction.flags, () => correction.value);
  const index = argument === undefined ? -1 : argv.indexOf(argument.text);
  if (argument !== undefined && index !== -1 && index === argv.lastIndexOf(argument.text))
    return [...argv.slice(0, index), ...argument.words, ...argv.slice(index + 1)];
  const output =
    charged === 'no'
      ? withCorrectedFlag(argv, ['-o', '--output'], (path) => alternativeOutput(error, path))
      : undefined;
  if (output !== undefined) return output;
  const { name = '', limit, exceeded_by: excess } = budget ?? {};
  const { kind } = recordedBudget(name);
  if (kind === 'standing' || (kind === 'batch' && next?.[1] === 'batch')) return undefined;
  if (limit === undefined || excess === undefined) return undefined;
  return withCorrectedFlag(argv, ['--budget'], () =>
    formatDecimal(add(parseDecimal(limit), parseDecimal(excess))),
  );
}

// Returns the typed command, changed to send the content of a file instead of its name. Undefined if the name occurs
// more than once, or the command needs a shell that is not available.
function commandReadingFile({ fileName }: MgwError, argv: readonly string[]): string[] | undefined {
  if (fileName === undefined) return undefined;
  const { text, path, flag } = fileName;
  const [index, ...others] = argv.flatMap((word, at) =>
    word === text || word === `--prompt=${text}` ? [at] : [],
  );
  if (index === undefined || others.length > 0) return undefined;
  const start = argv[index - 1] === '--prompt' ? index - 1 : index;
  const rest = argv.slice(index + 1);
  if (flag !== undefined) {
    const at = Math.min(start, optionsEnd(argv));
    return ['mgw', ...argv.slice(0, at), flag, path, ...argv.slice(at, start), ...rest];
  }
  if (process.platform === 'win32') return undefined;
  const command = ['mgw', ...argv.slice(0, start), '-', ...rest].map(shellWord).join(' ');
  return ['sh', '-c', `${command} < ${shellWord(path)}`];
}

// Returns the typed command for each protocol that accepts it; an empty list if the command is not a video command.
function commandsByProtocol(
  { code, protocols = [] }: MgwError,
  argv: readonly string[],
  protocolNames: readonly string[],
): string[][] {
  const verb = argv.findIndex((word) => ['submit', 'status', 'fetch'].includes(word));
  const group = argv.slice(0, Math.max(0, verb)).lastIndexOf('video');
  if (code !== 'usage' || group === -1) return [];
  const between = argv.slice(group + 1, verb).filter((word) => !protocolNames.includes(word));
  return protocols.map((name) => [...argv.slice(0, group + 1), name, ...between, ...argv.slice(verb)]);
}

function withChoices(error: MgwError, choices: readonly string[][]): MgwError {
  const lines = choices.map((choice) => ['mgw', ...choice].map(shellWord).join(' '));
  return error.with(
    { next: error.next ?? ['mgw', 'models'] },
    `${error.message} Choose one:\n${lines.join('\n')}`,
  );
}

function withCorrectedFlag(
  argv: readonly string[],
  names: readonly string[],
  correction: (value: string) => string | undefined,
): string[] | undefined {
  for (const [index, word] of argv.slice(0, optionsEnd(argv)).entries()) {
    const [name = '', ...valueParts] = word.split('=');
    if (!names.includes(name)) continue;
    const isOneWord = valueParts.length > 0;
    const value = correction(isOneWord ? valueParts.join('=') : (argv[index + 1] ?? ''));
    if (value === undefined) return undefined;
    const words = isOneWord ? [`${name}=${value}`] : [name, value];
    return [...argv.slice(0, index), ...words, ...argv.slice(index + words.length)];
  }
  return undefined;
}

// Returns the index where the options end. Words after `--` are not options.
function optionsEnd(argv: readonly string[]): number {
  return argv.includes('--') ? argv.indexOf('--') : argv.length;
}
