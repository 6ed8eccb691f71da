import { spawn, type StdioOptions } from 'node:child_process';
import { chmod, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import type { ConfigFile } from '../../../config/schema.ts';
import { formatDuration } from '../../../duration.ts';
import { MgwError, systemCode, usageError } from '../../../errors.ts';
import { ownCommand } from '../../../installation.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import { shellWord } from '../../output/human.ts';

/** The folder of a script under `mgw sandbox exec`, removed when the script ends. */
export interface ScriptFolder {
  path: string;
  /** Its home, with a config that holds no key. */
  home: string;
  /** Its state directory, with the ledger and the sandbox. */
  state: string;
  config: string;
  /** The first folder on its PATH, with this mgw. */
  bin: string;
}

/** Makes the folder of a script, which only the owner can read. */
export async function makeScriptFolder(): Promise<ScriptFolder> {
  // Absolute, since the script may change its current folder.
  const path = await mkdtemp(join(resolve(tmpdir()), 'mgw-exec-'));
  const home = join(path, 'home');
  const folder = {
    ...{ path, home, bin: join(path, 'bin') },
    config: join(home, '.config', 'mgw'),
    state: join(home, '.local', 'state', 'mgw'),
  };
  for (const each of [folder.config, folder.state, folder.bin])
    await mkdir(each, { recursive: true, mode: 0o700 });
  return folder;
}

/**
 * Leads the script's mgw to the sandbox. Writes a start script on its PATH that names the sandbox, so that no change of
 * the environment leads elsewhere, and a config with the profiles of `own`, whose only setting is `pollMs`, the pause
 * between polls.
 * @throws MgwError('usage') if the folder cannot be put on a PATH.
 */
export async function equipScript(
  folder: ScriptFolder,
  sandbox: Pick<Sandbox, 'url'>,
  own: ConfigFile,
  pollMs: number | undefined,
): Promise<void> {
  if (folder.bin.includes(delimiter))
    throw usageError(`TMPDIR ${tmpdir()}: a folder with "${delimiter}" in its name cannot be on the PATH.`);
  const profile = pollMs === undefined ? {} : { poll_interval: formatDuration(pollMs) };
  const names = ['default', ...Object.keys(own.profiles)];
  const config = { profiles: Object.fromEntries(names.map((name) => [name, profile])) };
  await writeFile(join(folder.config, 'config.json'), JSON.stringify(config), { mode: 0o600 });
  await writeFile(join(folder.bin, 'mgw'), startScript(folder, sandbox));
  await chmod(join(folder.bin, 'mgw'), 0o700);
}

// Not a link to mgw.js, which would run with whatever node is on the PATH.
function startScript({ config, state }: ScriptFolder, { url }: Pick<Sandbox, 'url'>): string {
  return [
    '#!/bin/sh',
    `export MGW_SANDBOX=${shellWord(url)} MGW_CONFIG_DIR=${shellWord(config)}`,
    `[ -n "$MGW_STATE_DIR" ] || export MGW_STATE_DIR=${shellWord(state)}`,
    `exec ${ownCommand().map(shellWord).join(' ')} "$@"`,
    '',
  ].join('\n');
}

/**
 * Returns the environment of a script: MGW_BASE_URL and MGW_API_KEY for programs that call the gateway themselves,
 * MGW_SANDBOX for an mgw that is not on its PATH, the AWS variables of the sandbox's object storage, and its own home.
 * No variable contains one of `keys`.
 */
export function scriptEnvironment(
  env: NodeJS.ProcessEnv,
  sandbox: Pick<Sandbox, 'url' | 'key' | 'store'>,
  folder: ScriptFolder,
  keys: readonly string[],
): NodeJS.ProcessEnv {
  const noProxy = [env['NO_PROXY'] ?? env['no_proxy'], '127.0.0.1', 'localhost'].filter(Boolean).join(',');
  return {
    ...withoutKeys(env, keys),
    HOME: folder.home,
    MGW_BASE_URL: sandbox.url,
    MGW_API_KEY: sandbox.key,
    MGW_SANDBOX: sandbox.url,
    MGW_STATE_DIR: folder.state,
    MGW_CONFIG_DIR: folder.config,
    ...sandbox.store,
    // Other programs would send loopback requests to the proxy.
    NO_PROXY: noProxy,
    no_proxy: noProxy,
    PATH: [folder.bin, env['PATH']].filter(Boolean).join(delimiter),
  };
}

/** Variables that lead to the user's own key, config, ledger or object storage, or hold the password of its database. */
const LEADING_OUT = [
  ...['MGW_STATE', 'MGW_API_KEY_FILE', 'MGW_PROFILE', 'XDG_CONFIG_HOME', 'XDG_STATE_HOME'],
  ...['PGPASSWORD', 'PGPASSFILE'],
  ...['AWS_PROFILE', 'AWS_SESSION_TOKEN', 'AWS_SHARED_CREDENTIALS_FILE', 'AWS_CONFIG_FILE'],
  ...['AWS_ENDPOINT_URL', 'AWS_DEFAULT_REGION'],
];
/** A shorter key may occur in other variables by chance. */
const SHORTEST_KEY = 8;

// CI may pass one secret under several names.
function withoutKeys(env: NodeJS.ProcessEnv, keys: readonly string[]): NodeJS.ProcessEnv {
  const secrets = keys.filter(({ length }) => length >= SHORTEST_KEY);
  const isSafe = (name: string, value = ''): boolean =>
    !LEADING_OUT.includes(name) && !secrets.some((secret) => value.includes(secret));
  return Object.fromEntries(Object.entries(env).filter(([name, value]) => isSafe(name, value)));
}
/**
 * Runs a script to its end and returns its exit code (128 plus the signal's number if a signal ended it). Forwards
 * signals to it.
 * @throws MgwError('usage') if it cannot be run.
 */
export function runScript(
  [file = '', ...rest]: readonly string[],
  env: NodeJS.ProcessEnv,
  stdio: StdioOptions,
): Promise<number> {
  return new Promise((resolve, reject) => {
    // Listen before the script starts: a signal in between would end mgw but not the script.
    for (const signal of signals) process.on(signal, forward);
    const child = spawn(file, rest, { env, stdio });
    // A terminal sends Ctrl-C to the script too. Forwarding it would make the script receive it twice.
    function forward(signal: NodeJS.Signals): void {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    }
    const ended = (): void => signals.forEach((signal) => process.off(signal, forward));
    child.once('error', (error) => {
      ended();
      reject(new MgwError('usage', `${file} cannot be run: ${whyNotRun(error)}.`, { cause: error }));
    });
    child.once('close', (code, signal) => {
      ended();
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

function whyNotRun(error: Error): string {
  const words: Record<string, string> = {
    ENOENT: 'there is no such command',
    EACCES: 'it is no program, or may not be run',
  };
  return words[systemCode(error) ?? ''] ?? error.message;
}
