import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { dirname, join, parse, resolve } from 'node:path';
import type { Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import { type MgwError, systemCode } from '../errors.ts';
import { isFolder, realPathOf } from '../files/make-folder.ts';
import { homeFolder } from '../installation.ts';
import { lostProtocol, type Job } from '../job.ts';
import { fetchCommand } from '../jobs/errors.ts';
import { isObjectUrl } from '../store-url.ts';

/** The settings that choose the gateway or the ledger. */
type Globals = Pick<SettingFlags, 'profile' | 'baseUrl' | 'sandbox' | 'allowHttp' | 'allowInsecureDatabase'>;

/** The flags of this process that a command suggested to the user must repeat. */
export type ServerFlags = Globals & Pick<SettingFlags, 'budgetName'>;

/** Returns the global flags that choose the gateway or the ledger, each with its value, for a suggested command. */
export function globalArguments(globals: Globals): string[][] {
  return [
    ...(globals.profile === undefined ? [] : [['--profile', globals.profile]]),
    ...(globals.baseUrl === undefined ? [] : [['--base-url', globals.baseUrl]]),
    ...(globals.sandbox ? [['--sandbox']] : []),
    ...(globals.allowHttp ? [['--allow-http']] : []),
    ...(globals.allowInsecureDatabase ? [['--allow-insecure-database']] : []),
  ];
}

/** Adds the flags for the same gateway and ledger to an error's `next` command; see {@link commandWithGlobals}. */
export function withGlobals(error: MgwError, globals: Globals): MgwError {
  return error.next === undefined ? error : error.with({ next: commandWithGlobals(error.next, globals) });
}

/**
 * Adds the flags for the same gateway and ledger to a command. Adds only `--profile` if the command specifies its own
 * gateway or changes the config file.
 */
export function commandWithGlobals(command: readonly string[], globals: Globals): string[] {
  const [mgw, ...args] = command;
  // Ignore the arguments after `--`, which may look like flags.
  const flagArgs = args.includes('--') ? args.slice(0, args.indexOf('--')) : args;
  if (mgw !== 'mgw' || flagArgs.at(-1) === '--help') return [...command];
  // A setting belongs to a profile, regardless of the gateway.
  const hasGateway =
    ['--base-url', '--sandbox'].some((flag) => flagArgs.includes(flag)) || args[0] === 'config';
  const flags = globalArguments(globals).filter(
    ([name = '']) => !flagArgs.includes(name) && (!hasGateway || name === '--profile'),
  );
  return [mgw, ...flags.flat(), ...args];
}

// The variables that choose the ledger and the config file. There are no flags for them.
const folderVariables = ['MGW_STATE_DIR', 'MGW_CONFIG_DIR'];

/**
 * Returns a command for the user to run, with the same gateway, ledger and standing budget as this process. The user's
 * shell may lack the environment of this process, so the environment's values become flags, or an `env` prefix if there
 * is no flag.
 * @param settings undefined if the settings are invalid
 */
export function commandForPerson(
  command: readonly string[],
  { budgetName, ...flags }: ServerFlags,
  settings: Pick<Settings, 'profile' | 'baseUrl' | 'sandbox'> | undefined,
  env: NodeJS.ProcessEnv,
): string[] {
  const globals: Globals = { ...flags };
  if (settings?.profile.source === 'env') globals.profile = settings.profile.value;
  if (settings?.sandbox.value) globals.sandbox = true;
  else if (settings?.baseUrl?.source === 'env') globals.baseUrl = settings.baseUrl.value;
  // The password in MGW_STATE is redacted only if the settings are valid.
  const names = settings === undefined ? folderVariables : [...folderVariables, 'MGW_STATE'];
  const variables = names.flatMap((name) => (env[name] ? `${name}=${env[name]}` : []));
  const hasPrefix = command[0] === 'mgw' && variables.length > 0 && process.platform !== 'win32';
  return [
    ...(hasPrefix ? ['env', ...variables] : []),
    ...commandWithGlobals(withKeptFlags(command, { budgetName }), globals),
  ];
}

/** The flags of a failed command that the suggested command also needs. */
export interface KeptFlags {
  output?: string | undefined;
  force?: boolean | undefined;
  strict?: boolean | undefined;
  mark?: boolean | undefined;
  budget?: string | undefined;
  budgetName?: string | undefined;
}

/**
 * Adds the failed command's flags to a suggested command. Omits flags that the suggested command already has or does
 * not accept.
 */
export function withKeptFlags(command: readonly string[], flags: KeptFlags): string[] {
  if (command.includes('--not-created')) return [...command];
  const { output, force, strict, mark, budget, budgetName } = flags;
  const isFetch = command.includes('fetch');
  const canPay = command.includes('resolve') && !command.includes('--adopt');
  // A command with its own -o also determines whether to overwrite that output.
  const outputFlags =
    output === undefined || command.includes('-o') ? [] : [['-o', output], ...(force ? [['--force']] : [])];
  const checkFlags =
    output !== undefined && isFetch ? [...(strict ? [['--strict']] : []), ...(mark ? [['--mark']] : [])] : [];
  const budgetFlags = [
    ...(budget === undefined ? [] : [['--budget', budget]]),
    ...(budgetName === undefined ? [] : [['--budget-name', budgetName]]),
  ];
  const end = command.includes('--') ? command.indexOf('--') : command.length;
  const keptFlags = [...outputFlags, ...checkFlags, ...(canPay ? budgetFlags : [])]
    .filter(([name = '']) => !command.includes(name))
    .flat();
  return [...command.slice(0, end), ...keptFlags, ...command.slice(end)];
}

/**
 * Returns a command's error with a `next` that saves the result to the command's output, not one that only waits. The
 * suggested command spends no more than the failed command's budgets allow.
 */
export function withOutput(error: MgwError, flags: KeptFlags): MgwError {
  const { job, next, retry } = error;
  // Keep a suggestion that fixes the cause, and one to show the job, because another fetch would not help.
  const isKept = next !== undefined && (next[0] !== 'mgw' || next[1] === 'auth' || next[2] === 'show');
  // `jobs resolve` cannot fetch a result if the job's record has lost the protocol.
  const isFetchable = job !== undefined && job.protocol !== 'tts' && job.protocol !== lostProtocol;
  if (!isFetchable || isKept) return error;
  if (next?.includes('resolve')) return error.with({ next: withKeptFlags(next, flags) });
  const command = next?.includes('fetch') ? next : fetchCommand(job);
  const isUnsuitable = command.includes('show') || (command !== next && retry !== 'resume');
  return flags.output === undefined || isUnsuitable
    ? error
    : error.with({ next: withKeptFlags(command, flags) });
}

// After these errors, a retry in the same folder cannot succeed.
const unwritableFolderCodes = ['EACCES', 'EPERM', 'EROFS'];
// After these errors, a retry with the same path cannot succeed.
const unusablePathCodes = ['ENOTDIR', 'EEXIST', 'ELOOP', 'ENAMETOOLONG', ...unwritableFolderCodes];

/**
 * Returns an output to use instead of one that failed. If the file exists, this is a free path next to it. If no file
 * can be created at `output`, this is a path in the current or home folder. A `~` at the beginning is expanded.
 * Undefined if a different output would not help, or if {@link chmodCommand} fixes the cause.
 */
export function alternativeOutput(error: MgwError, output: string): string | undefined {
  if (output === '-') return undefined;
  if (error.code === 'output_exists') return freePath(output);
  // The command line refuses a path that begins with `~`.
  if (error.code === 'usage' && output.startsWith('~/')) return join(homeFolder(), output.slice(2));
  if (error.path === undefined || !unusablePathCodes.includes(systemCode(error.cause) ?? ''))
    return undefined;
  const folder = otherFolder(error, error.path);
  if (folder === undefined) return undefined;
  const { dir, name, ext } = parse(output);
  const path = join(folder, `${name.slice(0, 100)}${ext}`);
  if (/[\\/]$/.test(output)) return folder === '' ? './' : `${folder}/`;
  return (folder === '' && dir === '') || existsSync(path) ? freePath(path) : path;
}

// Returns the folder for an output that cannot be created at `failedPath`; '' is the current folder.
function otherFolder(error: MgwError, failedPath: string): string | undefined {
  if (!unwritableFolderCodes.includes(systemCode(error.cause) ?? '')) return '';
  const failedFolder = realPathOf(existingFolder(failedPath));
  const isUsable = (folder: string): boolean => realPathOf(folder) !== failedFolder && isWritable(folder);
  if (isUsable(process.cwd())) return '';
  return chmodCommand(error) === undefined ? [homeFolder()].find(isUsable) : undefined;
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function existingFolder(path: string): string {
  const folder = resolve(path);
  return isFolder(folder) || folder === dirname(folder) ? folder : existingFolder(dirname(folder));
}

/** Returns the command that lets the user write to their own folder; undefined if the error has a different cause. */
export function chmodCommand({ path, cause }: MgwError): string[] | undefined {
  if (path === undefined || systemCode(cause) !== 'EACCES') return undefined;
  const folder = existingFolder(path);
  const { uid, mode } = statSync(folder);
  const isClosed = uid === process.geteuid?.() && (mode & 0o300) !== 0o300;
  return isClosed ? ['chmod', 'u+wx', folder] : undefined;
}

/** Returns the command to run if a paid job could not be saved at the given output; undefined if none is known. */
export function nextForOutput(error: MgwError, job: Job, output: string): string[] | undefined {
  const folder = error.path === undefined ? '' : dirname(error.path);
  if (systemCode(error.cause) === 'ENOENT' && folder !== '' && !existsSync(folder))
    return ['mkdir', '-p', folder];
  // No path next to a device or a pipe can be suggested.
  const elsewhere = error.code === 'output_exists' ? './' : undefined;
  const alternative = alternativeOutput(error, output) ?? elsewhere;
  return alternative === undefined ? chmodCommand(error) : [...fetchCommand(job), '-o', alternative];
}

/**
 * Returns a free path next to an existing path: `boat-2.mp4` for `boat.mp4`. Undefined for a template, a folder without
 * a name, or a device. For an object, returns the URL with the next number, because only the store knows whether that
 * URL is free.
 */
function freePath(existingPath: string): string | undefined {
  const { dir, name, ext } = parse(existingPath);
  const isObject = isObjectUrl(existingPath);
  // An object URL may contain `{n}`, which is replaced later.
  const checkedPath = isObject ? existingPath.replaceAll('{n}', 'n') : existingPath;
  if (/[{}]|[\\/]$/.test(checkedPath) || /^\.{0,2}$/.test(name)) return undefined;
  if (isObject) {
    const [, stem = name, number = '1'] = /^(.+)-(\d{1,9})$/.exec(name) ?? [];
    return `${dir}/${stem}-${Number(number) + 1}${ext}`;
  }
  const stat = statSync(existingPath, { throwIfNoEntry: false });
  if (stat !== undefined && !stat.isFile() && !stat.isDirectory()) return undefined;
  for (let number = 2; ; number += 1) {
    const path = join(dir, `${name}-${number}${ext}`);
    if (!existsSync(path)) return path;
  }
}

/** Returns a command with the given `--budget`; unchanged if `amount` is undefined. */
export function withBudget(words: readonly string[], amount: string | undefined): string[] {
  if (amount === undefined) return [...words];
  const at = words.indexOf('--budget');
  if (at === -1) return [...words, '--budget', amount];
  return [...words.slice(0, at + 1), amount, ...words.slice(at + 2)];
}
