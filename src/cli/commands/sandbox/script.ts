import { spawn, type StdioOptions } from 'node:child_process';
import { chmod, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { formatDuration } from '../../../duration.ts';
import { MgwError, systemCode } from '../../../errors.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import { shellWord } from '../../output/human.ts';

/** The world of a script under `mgw sandbox exec`: a folder of its own, removed when the script has ended. */
export interface ScriptFolder {
  /** Its state directory: the ledger and the sandbox are below it. */
  state: string;
  /** Its config directory, without any key. */
  config: string;
  /** First on its PATH: this very mgw. */
  bin: string;
}

/**
 * Makes the folders of a script, for their owner alone. `pollMs` becomes its mgw's pause between polls, which is
 * short in a sandbox otherwise.
 */
export async function makeScriptFolder(pollMs: number | undefined): Promise<ScriptFolder> {
  const state = await mkdtemp(join(tmpdir(), 'mgw-exec-'));
  const folder = { state, config: join(state, 'config'), bin: join(state, 'bin') };
  for (const path of [folder.config, folder.bin]) await mkdir(path, { mode: 0o700 });
  const mgw = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
  // No link to mgw.js: its first line would look for a node on the PATH, and there may be another one or none.
  const start = `#!/bin/sh\nexec ${shellWord(process.execPath)} ${shellWord(mgw)} "$@"\n`;
  await writeFile(join(folder.bin, 'mgw'), start);
  await chmod(join(folder.bin, 'mgw'), 0o700);
  if (pollMs !== undefined) {
    const config = { profiles: { default: { poll_interval: formatDuration(pollMs) } } };
    await writeFile(join(folder.config, 'config.json'), JSON.stringify(config), { mode: 0o600 });
  }
  return folder;
}

/**
 * The environment of a script: MGW_BASE_URL and MGW_API_KEY for what calls the gateway by itself, MGW_SANDBOX for
 * mgw, which then speaks to nothing but this sandbox; the real key is in none of its variables.
 */
export function scriptEnvironment(
  env: NodeJS.ProcessEnv,
  sandbox: Sandbox,
  folder: ScriptFolder,
): NodeJS.ProcessEnv {
  const noProxy = [env['NO_PROXY'] ?? env['no_proxy'], '127.0.0.1', 'localhost'].filter(Boolean).join(',');
  return {
    ...withoutKey(env),
    MGW_BASE_URL: sandbox.url,
    MGW_API_KEY: sandbox.key,
    MGW_SANDBOX: sandbox.url,
    MGW_STATE_DIR: folder.state,
    MGW_CONFIG_DIR: folder.config,
    // What is not mgw would ask the proxy for loopback.
    NO_PROXY: noProxy,
    no_proxy: noProxy,
    PATH: `${folder.bin}${delimiter}${env['PATH'] ?? ''}`,
  };
}

// CI hands one secret on under several names.
function withoutKey(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const key = env['MGW_API_KEY'] ?? '';
  const holdsKey = (value = ''): boolean => key.length >= 8 && value.includes(key);
  const leadsToKey = ['MGW_API_KEY_FILE', 'MGW_PROFILE'];
  return Object.fromEntries(
    Object.entries(env).filter(([name, value]) => !leadsToKey.includes(name) && !holdsKey(value)),
  );
}

/**
 * Runs a script to its end and gives its exit code (128 and the signal's number where a signal ended it).
 * Signals are passed on. @throws MgwError('usage') where it cannot be run.
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
