import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import { equipScript, makeScriptFolder, runScript, scriptEnvironment, type ScriptFolder } from './script.ts';
import { addServeOptions, gatewayFolder, serve, type ServeOptions } from './serve.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import { single } from '../../options.ts';
import { errorView, type Outcome } from '../../output/outcome.ts';
import { keyOfFile, readKeyFile } from '../../../config/key.ts';
import type { ConfigFile } from '../../../config/schema.ts';
import { parseDuration } from '../../../duration.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { sandboxFolder } from '../../../flows/settings.ts';
import type { Finding } from '../../../sandbox/verify.ts';

interface ExecOptions extends ServeOptions {
  verify?: boolean;
  /** ms. */
  minPoll?: number;
}

/** `mgw sandbox exec -- CMD`: runs a script against a new sandbox, with the real key out of reach. */
export function registerExec(command: Command, run: Run): void {
  command
    .argument('<command...>', 'the command and its arguments, after --')
    .option(
      '--verify',
      'exit 5 where the script paid twice, polled too fast, sent the key to the file host, or ended with 0 without what it paid for',
    )
    .addOption(
      single(
        '--min-poll <duration>',
        'with --verify: judge the polling of mgw too, by this pause (default: that of others, by 5s)',
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
  if (options.minPoll !== undefined && !options.verify)
    throw usageError('--min-poll is judged by --verify: give both.');
  const shared = gatewayFolder(sandboxFolder(await context.settings()));
  const folder = await makeScriptFolder();
  const own = gatewayFolder(join(folder.state, 'sandbox'));
  try {
    const exitCode = await served(context, argv, options, folder, own);
    return await judged(own, exitCode, context, options);
  } finally {
    const { takeOverBill } = await import('../../../sandbox/bill.ts');
    takeOverBill(shared, own);
    await rm(folder.path, { recursive: true, force: true });
  }
}

async function served(
  context: Context,
  argv: string[],
  options: ExecOptions,
  folder: ScriptFolder,
  own: string,
): Promise<number> {
  const { readConfig } = await import('../../../config/read.ts');
  const { env } = context.io;
  const config = await readConfig(env);
  const sandbox = await serve(context, own, options);
  // With --json, stdout holds only the document.
  const stdout = context.globals.json ? 2 : 'inherit';
  try {
    await equipScript(folder, sandbox, config, options.minPoll);
    const environment = scriptEnvironment(env, sandbox, folder, configuredKeys(env, config));
    return await runScript(argv, environment, ['inherit', stdout, 'inherit']);
  } finally {
    await sandbox.close();
  }
}

async function judged(
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
      'The jobs of this sandbox are removed with it: a command above that names one no longer works.',
    );
  if (!options.verify) return { json, exitCode: scriptExitCode };
  const { verify } = await import('../../../sandbox/verify.ts');
  const findings = verify(gateway, { minPollMs: options.minPoll, succeeded: scriptExitCode === 0 });
  const charges = `${bill.length} ${bill.length === 1 ? 'charge' : 'charges'}, ${total} credits`;
  if (findings.length === 0) {
    context.progress.note(`Verified: ${charges}, no findings.`);
    return { json: { ...json, findings }, exitCode: scriptExitCode };
  }
  const error = complaint(findings, scriptExitCode, total);
  const ending = `  Play money: ${charges}. (exit ${error.exitCode})`;
  if (!context.globals.json) await write(context.io.stderr, `mgw: ${error.message}\n${ending}\n`);
  return { json: { ...json, findings, error: errorView(error) }, exitCode: error.exitCode };
}

function complaint(findings: readonly Finding[], scriptExitCode: number, total: number): MgwError {
  const lines = findings.map(({ kind, message }) => `  ${kind}: ${message}`);
  const text = `The script ended with ${scriptExitCode}, and did what it should not:\n${lines.join('\n')}`;
  return new MgwError('task_failed', text, { exit: 'failed', charged: total > 0 ? 'yes' : 'no' });
}

/** Returns every configured key, in use or not: from MGW_API_KEY, the file of MGW_API_KEY_FILE, and each profile. */
function configuredKeys(env: NodeJS.ProcessEnv, { profiles }: ConfigFile): string[] {
  const keys = [env['MGW_API_KEY'], keyInFile(env), ...Object.values(profiles).map((each) => each.api_key)];
  return keys.filter((key) => key !== undefined);
}

function keyInFile({ MGW_API_KEY_FILE: path }: NodeJS.ProcessEnv): string | undefined {
  try {
    return path ? keyOfFile(readKeyFile(path)).trim() : undefined;
  } catch {
    // An unreadable file is often a CI secret that was not passed on. It cannot leak.
    return undefined;
  }
}
