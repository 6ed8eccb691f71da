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

/** The world of a script under `mgw sandbox exec`: a folder of its own, removed when the script has ended. */
export interface ScriptFolder {
  path: string;
  /** Its home, where a config without any key is. */
  home: string;
  /** Its state directory: the ledger and the sandbox are below it. */
  state: string;
  config: string;
  /** First on its PATH: this very mgw. */
  bin: string;
}

/** Makes the folder of a script, for its owner alone. */
export async function makeScriptFolder(): Promise<ScriptFolder> {
  // Absolute, since a script may change its folder.
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
 * Writes what leads a script's mgw to the sandbox: a start script on its PATH that says where the sandbox is, so that
 * nothing the script does to its environment can lead elsewhere, and a config that has the same profiles as `own`,
 * each without any setting but `pollMs`, its mgw's pause between polls.
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

// Not a link to mgw.js: its first line looks for a node on the PATH, which may be another one, or missing.
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
 * The environment of a script: MGW_BASE_URL and MGW_API_KEY for what calls the gateway by itself, MGW_SANDBOX for any
 * other mgw than that on its PATH, the AWS variables of the sandbox's object storage, and a home of its own; `keys` are in none of its variables.
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
    // What is not mgw would ask the proxy for loopback.
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
/** A shorter key is in other variables by chance. */
const SHORTEST_KEY = 8;

// CI hands one secret on under several names.
function withoutKeys(env: NodeJS.ProcessEnv, keys: readonly string[]): NodeJS.ProcessEnv {
  const secrets = keys.filter(({ length }) => length >= SHORTEST_KEY);
  const isSafe = (name: string, value = ''): boolean =>
    !LEADING_OUT.includes(name) && !secrets.some((secret) => value.includes(secret));
  return Object.fromEntries(Object.entries(env).filter(([name, value]) => isSafe(name, value)));
}
/**
 * Runs a script to its end and returns its exit code (128 plus the signal's number if a signal ended it).
 * Signals are passed on. @throws MgwError('usage') if it cannot be run.
 */
export function runScript(
  [file = '', ...rest]: readonly string[],
  env: NodeJS.ProcessEnv,
  stdio: StdioOptions,
): Promise<number> {
  return new Promise((resolve, reject) => {
    // Listened to before the script runs: a signal in between would end mgw and leave the script behind.
    for (const signal of signals) process.on(signal, forward);
    const child = spawn(file, rest, { env, stdio });
    // A terminal sends Ctrl-C to the script too, and a second one would end more than was asked for.
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
