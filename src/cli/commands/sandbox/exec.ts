import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { constants } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { exitCodes, MgwError } from '../../../errors.ts';
import type { Finding } from '../../../sandbox/verify.ts';
import type { Sandbox } from '../../../sandbox/server.ts';
import { sandboxFolder, type Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../program.ts';
import { addServeOptions, gatewayFolder, serve, type ServeOptions } from './serve.ts';

interface ExecOptions extends ServeOptions {
  verify?: boolean;
}

/** `mgw sandbox exec -- CMD`: runs a script against a sandbox of its own, with the real key out of reach. */
export function registerExec(sandbox: Command, run: Run): void {
  const command = sandbox
    .command('exec')
    .description("run a script against the sandbox; its exit code is the script's")
    .argument('<command...>', 'the command and its arguments, behind --')
    .option(
      '--verify',
      'fail where the script paid twice, polled too fast, leaked the key or left a result unfetched',
    );
  addServeOptions(command);
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw sandbox exec --verify --fault submit-reply-lost -- ./script.sh',
    )
    .action((argv: string[]) => run(command, (context) => exec(context, argv, command.opts())));
}

async function exec(context: Context, argv: string[], options: ExecOptions): Promise<Outcome> {
  const since = context.clock.now();
  const sandbox = await serve(context, options);
  const folder = await runFolder(sandboxFolder(await context.settings()));
  try {
    const exitCode = await spawned(argv, environment(context.io.env, sandbox, folder));
    if (!options.verify) return { json: {}, silent: true, exitCode };
    return await verified(context, exitCode, since);
  } finally {
    await sandbox.close();
    await rm(folder, { recursive: true, force: true });
  }
}

// A ledger of the script's own beside the shared sandbox, and this very mgw first on the PATH.
async function runFolder(sandbox: string): Promise<string> {
  await mkdir(sandbox, { recursive: true, mode: 0o700 });
  const folder = await mkdtemp(join(sandbox, 'exec-'));
  await mkdir(join(folder, 'bin'));
  await symlink(fileURLToPath(new URL('../bin/mgw.js', import.meta.url)), join(folder, 'bin', 'mgw'));
  await symlink(sandbox, join(folder, 'sandbox'));
  return folder;
}

function environment(env: NodeJS.ProcessEnv, sandbox: Sandbox, folder: string): NodeJS.ProcessEnv {
  const { MGW_API_KEY_FILE: _file, MGW_PROFILE: _profile, MGW_SANDBOX: _sandbox, ...rest } = env;
  return {
    ...rest,
    MGW_BASE_URL: sandbox.url,
    MGW_API_KEY: sandbox.key,
    MGW_STATE_DIR: folder,
    MGW_CONFIG_DIR: join(folder, 'config'),
    PATH: `${join(folder, 'bin')}${delimiter}${env['PATH'] ?? ''}`,
  };
}

function spawned([file = '', ...rest]: string[], env: NodeJS.ProcessEnv): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(file, rest, { env, stdio: 'inherit' });
    const forward = (signal: NodeJS.Signals): void => void child.kill(signal);
    process.on('SIGINT', forward).on('SIGTERM', forward);
    child.once('error', (error) =>
      reject(new MgwError('usage', `${file} cannot be run: ${error.message}`, { cause: error })),
    );
    child.once('close', (code, signal) => {
      process.off('SIGINT', forward).off('SIGTERM', forward);
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}

async function verified(context: Context, exitCode: number, since: number): Promise<Outcome> {
  const { verify } = await import('../../../sandbox/verify.ts');
  const findings = verify(gatewayFolder(sandboxFolder(await context.settings())), { since, minPollMs: 5000 });
  const json = { script_exit_code: exitCode, findings };
  if (findings.length === 0) return { json, silent: !context.globals.json, exitCode };
  return { json, error: complaint(findings), exitCode: exitCode === 0 ? exitCodes.failed : exitCode };
}

function complaint(findings: readonly Finding[]): MgwError {
  const lines = findings.map(({ kind, message }) => `  ${kind}: ${message}`);
  return new MgwError('task_failed', `The script did what it should not:\n${lines.join('\n')}`, {
    charged: 'no',
  });
}
