import { counted } from '../../../printable.ts';
import { rm, chmod, mkdir, writeFile } from 'node:fs/promises';
import { join, delimiter } from 'node:path';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import { addServeOptions, gatewayFolder, serve, type ServeOptions } from './serve.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { single } from '../../options.ts';
import { errorView, type Outcome } from '../../output/outcome.ts';
import { keyOfFile, readKeyFile } from '../../../config/key.ts';
import type { ConfigFile } from '../../../config/schema.ts';
import { parseDuration, formatDuration } from '../../../clock.ts';
import { MgwError, usageError, systemCode } from '../../../errors.ts';
import { makeTempFolder } from '../../../files/make-folder.ts';
import { sandboxFolder } from '../../../flows/settings.ts';
import type { Finding } from '../../../sandbox/verify.ts';
import { spawn, type StdioOptions } from 'node:child_process';
import { constants, tmpdir } from 'node:os';
import { selfCommand } from '../../../installation.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import { shellWord } from '../../output/human.ts';

interface ExecOptions extends ServeOptions {
  verify?: boolean;
  /** The minimum pause between polls, in ms. */
  minPoll?: number;
}

/** `mgw sandbox exec -- CMD`: runs a script against a new sandbox, without access to the real key. */
export function registerExec(command: Command, run: Run): void {
  command
    .argument('<command...>', 'the command and its arguments, after --')
    .option(
      '--verify',
      'exit 5 if the script paid twice, polled too often, sent the key to the file host, or exited 0 without fetching what it paid for',
    )
    .addOption(
      single(
        '--min-poll <duration>',
        'with --verify: minimum pause between polls, for mgw too (default: 5s, for other programs only)',
        parseDuration,
      ),
    );
  addServeOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw sandbox exec --verify --fault submit-reply-lost -- ./script.sh\n  $ mgw sandbox exec --verify --fault chaos@20% --seed 7 -- ./script.sh\n  $ mgw sandbox exec -- ./script.sh',
    )
    .action((argv: string[]) => run(command, (context) => exec(context, argv, command.opts())));
}

async function exec(context: Context, argv: string[], options: ExecOptions): Promise<Outcome> {
  if (options.minPoll !== undefined && !options.verify) throw usageError('--min-poll requires --verify.');
  const sharedGateway = gatewayFolder(sandboxFolder(await context.settings()));
  const folder = await makeScriptFolder();
  const gateway = gatewayFolder(join(folder.state, 'sandbox'));
  try {
    const exitCode = await runWithSandbox(context, argv, options, folder, gateway);
    return await scriptOutcome(gateway, exitCode, context, options);
  } finally {
    const { importBill } = await import('../../../sandbox/bill.ts');
    importBill(sharedGateway, gateway);
    await rm(folder.path, { recursive: true, force: true });
  }
}

async function runWithSandbox(
  context: Context,
  argv: string[],
  options: ExecOptions,
  folder: ScriptFolder,
  gateway: string,
): Promise<number> {
  const { readConfig } = await import('../../../config/read.ts');
  const { env } = context.io;
  const config = await readConfig(env);
  const sandbox = await serve(context, gateway, options);
  // With --json, stdout contains only the document.
  const stdout = context.globals.json ? 2 : 'inherit';
  try {
    await equipScript(folder, sandbox, config, options.minPoll);
    const environment = scriptEnvironment(env, sandbox, folder, configuredSecrets(env, config));
    return await runScript(argv, environment, ['inherit', stdout, 'inherit']);
  } finally {
    await sandbox.close();
  }
}

async function scriptOutcome(
  gateway: string,
  scriptExitCode: number,
  context: Context,
  options: ExecOptions,
): Promise<Outcome> {
  const { readBill, totalOf } = await import('../../../sandbox/bill.ts');
  const bill = readBill(gateway);
  const total = totalOf(bill);
  const json = { script_exit_code: scriptExitCode, bill, total };
  if (scriptExitCode !== 0 && bill.length > 0)
    context.progress.note(
      'This sandbox and its jobs were removed, so commands above that refer to its jobs no longer work.',
    );
  if (!options.verify) return { json, exitCode: scriptExitCode };
  const { verify } = await import('../../../sandbox/verify.ts');
  const findings = verify(gateway, { minPollMs: options.minPoll, succeeded: scriptExitCode === 0 });
  const charges = `${counted(bill.length, 'charge')}, ${total} credits`;
  if (findings.length === 0) {
    context.progress.note(`Verified: ${charges}, no findings.`);
    return { json: { ...json, findings }, exitCode: scriptExitCode };
  }
  const error = findingsError(findings, scriptExitCode, total);
  const chargeLine = `  Play money: ${charges}. (exit ${error.exitCode})`;
  if (!context.globals.json) await write(context.io.stderr, `mgw: ${error.message}\n${chargeLine}\n`);
  return { json: { ...json, findings, error: errorView(error, context.globals) }, exitCode: error.exitCode };
}

function findingsError(findings: readonly Finding[], scriptExitCode: number, total: number): MgwError {
  const lines = findings.map(({ kind, message }) => `  ${kind}: ${message}`);
  const text = `The script exited with ${scriptExitCode}, but made mistakes:\n${lines.join('\n')}`;
  return new MgwError('task_failed', text, { exit: 'failed', charged: total > 0 ? 'yes' : 'no' });
}

/**
 * Returns the database passwords and every configured key, whether or not it is used: from MGW_API_KEY, the file of
 * MGW_API_KEY_FILE, and each profile.
 */
function configuredSecrets(env: NodeJS.ProcessEnv, { profiles }: ConfigFile): string[] {
  const { MGW_API_KEY: key, MGW_STATE: state = '', PGPASSWORD: password } = env;
  const urlPassword = URL.canParse(state) ? new URL(state).password : '';
  const keys = [key, keyInFile(env), ...Object.values(profiles).map((each) => each.api_key)];
  return [...keys, password, urlPassword].filter((secret) => secret !== undefined);
}

function keyInFile({ MGW_API_KEY_FILE: path }: NodeJS.ProcessEnv): string | undefined {
  try {
    return path ? keyOfFile(readKeyFile(path)).trim() : undefined;
  } catch {
    // MGW_API_KEY_FILE often names a CI secret that was not provided. A key that cannot be read cannot leak.
    return undefined;
  }
}

/** The folder that `mgw sandbox exec` creates for a script, and removes when the script ends. */
interface ScriptFolder {
  path: string;
  /** The script's home folder, with a config that contains no key. */
  home: string;
  /** The script's state folder, with the ledger and the sandbox. */
  state: string;
  config: string;
  /** The first folder on the script's PATH. Its `mgw` command runs this installation. */
  bin: string;
}

/** Creates a folder for the script. Only its owner can read the folder. */
async function makeScriptFolder(): Promise<ScriptFolder> {
  const path = makeTempFolder('mgw-exec-');
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
 * Makes the script's `mgw` command use the sandbox. Writes a start script named `mgw`, which sets the sandbox's address
 * regardless of the environment. Writes a config file with the user's profile names. The only setting of each profile
 * is `pollMs`, the pause between polls.
 * @throws MgwError('usage') if the folder's path cannot be on the PATH.
 */
async function equipScript(
  folder: ScriptFolder,
  sandbox: Pick<Sandbox, 'url'>,
  userConfig: ConfigFile,
  pollMs: number | undefined,
): Promise<void> {
  if (folder.bin.includes(delimiter))
    throw usageError(`TMPDIR ${tmpdir()}: a folder with "${delimiter}" in its name cannot be on the PATH.`);
  const profile = pollMs === undefined ? {} : { poll_interval: formatDuration(pollMs) };
  const names = ['default', ...Object.keys(userConfig.profiles)];
  const config = { profiles: Object.fromEntries(names.map((name) => [name, profile])) };
  await writeFile(join(folder.config, 'config.json'), JSON.stringify(config), { mode: 0o600 });
  await writeFile(join(folder.bin, 'mgw'), startScript(folder, sandbox));
  await chmod(join(folder.bin, 'mgw'), 0o700);
}

// Returns the start script. A link to mgw.js would not suffice, because it would run in the first `node` on the PATH.
function startScript({ config, state }: ScriptFolder, { url }: Pick<Sandbox, 'url'>): string {
  return [
    '#!/bin/sh',
    `export MGW_SANDBOX=${shellWord(url)} MGW_CONFIG_DIR=${shellWord(config)}`,
    `[ -n "$MGW_STATE_DIR" ] || export MGW_STATE_DIR=${shellWord(state)}`,
    `exec ${selfCommand().map(shellWord).join(' ')} "$@"`,
    '',
  ].join('\n');
}

/**
 * Returns the script's environment. Sets MGW_BASE_URL and MGW_API_KEY for programs that call the gateway themselves,
 * and MGW_SANDBOX for other installations of mgw. Sets the AWS variables of the sandbox's object storage, and a
 * separate home folder. No variable contains one of `secrets`.
 */
function scriptEnvironment(
  env: NodeJS.ProcessEnv,
  sandbox: Pick<Sandbox, 'url' | 'key' | 'store'>,
  folder: ScriptFolder,
  secrets: readonly string[],
): NodeJS.ProcessEnv {
  const noProxy = [env['NO_PROXY'] ?? env['no_proxy'], '127.0.0.1', 'localhost'].filter(Boolean).join(',');
  return {
    ...withoutSecrets(env, secrets),
    HOME: folder.home,
    MGW_BASE_URL: sandbox.url,
    MGW_API_KEY: sandbox.key,
    MGW_SANDBOX: sandbox.url,
    MGW_STATE_DIR: folder.state,
    MGW_CONFIG_DIR: folder.config,
    ...sandbox.store,
    // Without NO_PROXY, other programs would send loopback requests to the proxy.
    NO_PROXY: noProxy,
    no_proxy: noProxy,
    PATH: [folder.bin, env['PATH']].filter(Boolean).join(delimiter),
  };
}

/** Variables that point to the user's own key, config, ledger or object storage, or contain secrets. */
const USER_VARIABLES =
  /^(MGW_(STATE|API_KEY_FILE|PROFILE)|XDG_(CONFIG|STATE)_HOME|PG(PASS|SERVICE|SSL).*|AWS_.*)$/;
/** The minimum length of a secret. A shorter one could occur in other variables by chance. */
const MIN_SECRET_LENGTH = 8;

// Checks every variable, because CI may pass a secret under several names.
function withoutSecrets(env: NodeJS.ProcessEnv, configured: readonly string[]): NodeJS.ProcessEnv {
  const secrets = configured.filter(({ length }) => length >= MIN_SECRET_LENGTH);
  const isSafe = (name: string, value = ''): boolean =>
    !USER_VARIABLES.test(name) && !secrets.some((secret) => value.includes(secret));
  return Object.fromEntries(Object.entries(env).filter(([name, value]) => isSafe(name, value)));
}

/**
 * Runs a script and returns its exit code (128 plus the signal's number if a signal ended it). Forwards signals to the
 * script.
 * @throws MgwError('usage') if the script cannot be run.
 */
function runScript(
  [file = '', ...args]: readonly string[],
  env: NodeJS.ProcessEnv,
  stdio: StdioOptions,
): Promise<number> {
  return new Promise((resolve, reject) => {
    // Listen for signals before the script starts. Otherwise, an early signal would end mgw but not the script.
    for (const signal of signals) process.on(signal, forward);
    const child = spawn(file, args, { env, stdio });
    // A terminal sends Ctrl-C to the script too. Forwarding it would make the script receive it twice.
    function forward(signal: NodeJS.Signals): void {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    }
    const stopForwarding = (): void => signals.forEach((signal) => process.off(signal, forward));
    child.once('error', (error) => {
      stopForwarding();
      reject(new MgwError('usage', `${file} cannot be run: ${explainNotRun(error)}.`, { cause: error }));
    });
    child.once('close', (code, signal) => {
      stopForwarding();
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

function explainNotRun(error: Error): string {
  const reasons: Record<string, string> = {
    ENOENT: 'no such command',
    EACCES: 'it is not an executable program',
  };
  return reasons[systemCode(error) ?? ''] ?? error.message;
}
