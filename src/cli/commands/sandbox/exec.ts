import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from 'commander';
import { parseDuration } from '../../../duration.ts';
import { MgwError, usageError } from '../../../errors.ts';
import type { Finding } from '../../../sandbox/verify.ts';
import { sandboxFolder, type Context } from '../../context.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { totalOf } from './bill.ts';
import { makeScriptFolder, runScript, scriptEnvironment } from './script.ts';
import { addServeOptions, gatewayFolder, serve, type ServeOptions } from './serve.ts';

interface ExecOptions extends ServeOptions {
  verify?: boolean;
  /** ms. */
  minPoll?: number;
}

/** `mgw sandbox exec -- CMD`: runs a script against a sandbox of its own, with the real key out of reach. */
export function registerExec(sandbox: Command, run: Run): void {
  const command = sandbox
    .command('exec')
    .description("run a script against a sandbox of its own; its exit code is the script's")
    .argument('<command...>', 'the command and its arguments, behind --')
    .option(
      '--verify',
      'exit 5 where the script paid twice, polled too fast, sent the key to the file host, or ended well without what it paid for',
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
      '\nExamples:\n  $ mgw sandbox exec --verify --fault submit-reply-lost -- ./script.sh\n  $ mgw sandbox exec --verify --fault chaos@20% --seed 7 -- ./script.sh',
    )
    .action((argv: string[]) => run(command, (context) => exec(context, argv, command.opts())));
}

async function exec(context: Context, argv: string[], options: ExecOptions): Promise<Outcome> {
  if (options.minPoll !== undefined && !options.verify)
    throw usageError('--min-poll is judged by --verify: give both.');
  const shared = gatewayFolder(sandboxFolder(await context.settings()));
  const folder = await makeScriptFolder(options.minPoll);
  const own = gatewayFolder(join(folder.state, 'sandbox'));
  try {
    const exitCode = await served(context, argv, options, folder, own);
    return await judged(own, exitCode, context, options);
  } finally {
    const { takeOverBill } = await import('../../../sandbox/bill.ts');
    takeOverBill(shared, own);
    await rm(folder.state, { recursive: true, force: true });
  }
}

async function served(
  context: Context,
  argv: string[],
  options: ExecOptions,
  folder: Awaited<ReturnType<typeof makeScriptFolder>>,
  own: string,
): Promise<number> {
  const sandbox = await serve(context, own, options);
  // Under --json stdout belongs to the one document.
  const stdout = context.globals.json ? 2 : 'inherit';
  try {
    const environment = scriptEnvironment(context.io.env, sandbox, folder);
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
  const { readBill } = await import('../../../sandbox/bill.ts');
  const bill = readBill(gateway);
  const json = { script_exit_code: scriptExitCode, bill, total: totalOf(bill) };
  if (!options.verify) return { json, exitCode: scriptExitCode };
  const { verify } = await import('../../../sandbox/verify.ts');
  const findings = verify(gateway, { minPollMs: options.minPoll }).filter(
    // A script that says it failed has not lost what it left behind.
    ({ kind }) => kind !== 'never-fetched' || scriptExitCode === 0,
  );
  if (findings.length > 0) return { json: { ...json, findings }, error: complaint(findings, scriptExitCode) };
  const charges = `${bill.length} ${bill.length === 1 ? 'charge' : 'charges'}, ${totalOf(bill)} credits`;
  context.progress.note(`Verified: ${charges}, nothing to complain of.`);
  return { json: { ...json, findings }, exitCode: scriptExitCode };
}

function complaint(findings: readonly Finding[], scriptExitCode: number): MgwError {
  const lines = findings.map(({ kind, message }) => `  ${kind}: ${message}`);
  const text = `The script did what it should not, with play money (it ended with ${scriptExitCode}):\n${lines.join('\n')}`;
  return new MgwError('task_failed', text, { exit: 'failed', charged: 'no' });
}
