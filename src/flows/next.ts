import { existsSync } from 'node:fs';
import { dirname, join, parse } from 'node:path';
import type { Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import { type MgwError, systemCode } from '../errors.ts';
import type { Job } from '../job.ts';
import { fetchCommand } from '../jobs/errors.ts';
import { isObjectUrl } from '../store-url.ts';

/** The settings that choose the gateway or the ledger. */
type Globals = Pick<SettingFlags, 'profile' | 'baseUrl' | 'sandbox' | 'allowHttp' | 'allowInsecureDatabase'>;

/** The flags of a server that a command of its person needs. */
export type ServerFlags = Globals & Pick<SettingFlags, 'budgetName'>;

/**
 * Returns the global flags that choose the gateway or the ledger, each with its value: a printed command needs them.
 */
export function globalArguments(globals: Globals): string[][] {
  return [
    ...(globals.profile === undefined ? [] : [['--profile', globals.profile]]),
    ...(globals.baseUrl === undefined ? [] : [['--base-url', globals.baseUrl]]),
    ...(globals.sandbox ? [['--sandbox']] : []),
    ...(globals.allowHttp ? [['--allow-http']] : []),
    ...(globals.allowInsecureDatabase ? [['--allow-insecure-database']] : []),
  ];
}

/** Returns the error with a `next` that uses the same gateway and ledger, unless `next` names its own gateway. */
export function withGlobals(error: MgwError, globals: Globals): MgwError {
  return error.next === undefined ? error : error.with({ next: commandWithGlobals(error.next, globals) });
}

function commandWithGlobals(command: readonly string[], globals: Globals): string[] {
  const [mgw, ...rest] = command;
  // A text after `--` may look like a flag.
  const words = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest;
  if (mgw !== 'mgw' || words.at(-1) === '--help') return [...command];
  const hasGateway = words.includes('--base-url') || words.includes('--sandbox');
  const flags = globalArguments(globals).filter(
    ([name = '']) => !words.includes(name) && (!hasGateway || name === '--profile'),
  );
  return [mgw, ...flags.flat(), ...rest];
}

/**
 * Returns a command of a server for a person, with the server's gateway, ledger and standing budget. The person's shell
 * may lack the server's environment, so its values become flags.
 * @param settings undefined if they are invalid
 */
export function commandForPerson(
  command: readonly string[],
  { budgetName, ...flags }: ServerFlags,
  settings: Pick<Settings, 'profile' | 'baseUrl' | 'sandbox'> | undefined,
): string[] {
  const globals: Globals = { ...flags };
  if (settings?.profile.source === 'env') globals.profile = settings.profile.value;
  if (settings?.sandbox.value) globals.sandbox = true;
  else if (settings?.baseUrl?.source === 'env') globals.baseUrl = settings.baseUrl.value;
  return commandWithGlobals(withKept(command, { budgetName }), globals);
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

/** Adds to a command the flags of the failed command that it accepts and does not have yet. */
export function withKept(command: readonly string[], flags: KeptFlags): string[] {
  if (command.includes('--not-created')) return [...command];
  const { output, force, strict, mark, budget, budgetName } = flags;
  const isFetch = command.includes('fetch');
  const canPay = command.includes('resolve') && !command.includes('--adopt');
  const saving =
    output === undefined || command.includes('-o')
      ? []
      : [
          ['-o', output],
          ...(force ? [['--force']] : []),
          ...(strict && isFetch ? [['--strict']] : []),
          ...(mark && isFetch ? [['--mark']] : []),
        ];
  const paying = [
    ...(budget === undefined ? [] : [['--budget', budget]]),
    ...(budgetName === undefined ? [] : [['--budget-name', budgetName]]),
  ];
  const missing = canPay ? paying.filter(([name = '']) => !command.includes(name)) : [];
  return [...command, ...saving.flat(), ...missing.flat()];
}

/**
 * Returns a command's error with a `next` that saves the file at the command's output instead of only waiting. That
 * `next` pays no more than the command's budgets allow.
 */
export function withOutput(error: MgwError, flags: KeptFlags): MgwError {
  const { job, next, retry } = error;
  // Keep a suggestion to run another program, since that fixes the cause.
  const runsOtherProgram = next !== undefined && next[0] !== 'mgw';
  if (job === undefined || job.protocol === 'tts' || runsOtherProgram) return error;
  if (next?.includes('resolve')) return error.with({ next: withKept(next, flags) });
  const own = next?.includes('fetch') ? next : fetchCommand(job);
  const isOther = own.includes('show') || (own !== next && retry !== 'resume');
  return flags.output === undefined || isOther ? error : error.with({ next: withKept(own, flags) });
}

// After these errors, the path stays unusable however often it is tried.
const unusable = ['ENOTDIR', 'EEXIST', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM', 'EROFS'];

/**
 * Returns an output to use instead of one that has failed: a free path next to a file that exists, or the current
 * folder for a path that can hold no file. Undefined if another output does not help.
 */
export function otherOutput(error: MgwError, output: string): string | undefined {
  if (error.code === 'output_exists') return freePath(output);
  if (error.path === undefined || !unusable.includes(systemCode(error.cause) ?? '')) return undefined;
  const { dir, name, ext } = parse(output);
  const here = `${name.slice(0, 100)}${ext}`;
  if (/[\\/]$/.test(output)) return './';
  return dir === '' || existsSync(here) ? freePath(here) : here;
}

/** Returns the command that helps if a paid job could not be saved at an output; undefined if that is not known. */
export function nextForOutput(error: MgwError, job: Job, output: string): string[] | undefined {
  const folder = error.path === undefined ? '' : dirname(error.path);
  if (systemCode(error.cause) === 'ENOENT' && folder !== '' && !existsSync(folder))
    return ['mkdir', '-p', folder];
  const other = otherOutput(error, output);
  return other === undefined ? undefined : [...fetchCommand(job), '-o', other];
}

/**
 * Returns a free path next to one that exists: `boat-2.mp4` for `boat.mp4`; undefined for a template or a folder. Next
 * to an object, the name with the next number: only the store knows whether it is free.
 */
function freePath(taken: string): string | undefined {
  const { dir, name, ext } = parse(taken);
  if (/[{}]|[\\/]$/.test(taken) || name === '') return undefined;
  if (isObjectUrl(taken)) {
    const [, stem = name, number = '1'] = /^(.+)-(\d{1,9})$/.exec(name) ?? [];
    return `${dir}/${stem}-${Number(number) + 1}${ext}`;
  }
  for (let number = 2; ; number += 1) {
    const path = join(dir, `${name}-${number}${ext}`);
    if (!existsSync(path)) return path;
  }
}
