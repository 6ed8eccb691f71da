import type { Command } from 'commander';
import { thisHost } from '../../config/places.ts';
import { exitCodes, usageError } from '../../errors.ts';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { readInputFile } from '../input.ts';
import { amount, budgetOptions, single } from '../options.ts';
import type { Outcome } from '../output/outcome.ts';

interface McpOptions {
  root?: string;
  budget?: string;
  newBudget?: boolean;
  confirmOver?: string;
}

const explanation = `
The server speaks JSON-RPC on standard input and output. It can read, wait and save. It can pay only
if the user grants an amount with --budget, or a standing budget with --budget-name.

Examples:
  $ mgw --sandbox mcp --budget 5
  $ mgw mcp --budget 20 --confirm-over 2 --root .
See mgw help agents.`;

/** `mgw mcp`: serves agents through the Model Context Protocol on stdin and stdout (design 16). */
export function registerMcp(command: Command, run: Run): void {
  command.addOption(
    single('--root <dir>', 'read and write files only below this folder (default: the current folder)'),
  );
  for (const option of budgetOptions('this root')) command.addOption(option);
  command
    .option('--new-budget', 'grant the amount of --budget again, in addition to what was spent')
    .addOption(single('--confirm-over <amount>', 'ask the user before a payment above this amount', amount))
    .addHelpText('after', explanation)
    .action(() => run(command, (context) => serve(context, command.opts())));
}

async function serve(
  context: Context,
  { root, budget, newBudget, confirmOver }: McpOptions,
): Promise<Outcome> {
  if (newBudget && budget === undefined)
    throw usageError('--new-budget requires --budget, which sets the amount.');
  const { io } = context;
  // Disables zod's compiler, because compiling the protocol's schemas would take a tenth of the startup time without a
  // noticeable benefit.
  (await import('zod')).config({ jitless: true });
  const { serveMcp } = await import('../../mcp/serve.ts');
  const signals = context.signals();
  await serveMcp({
    session: context,
    stdin: io.stdin,
    stdout: io.stdout,
    signals,
    flags: context.globals,
    env: io.env,
    root: root ?? thisHost().cwd,
    budget,
    newBudget,
    checkBatch: async (request, tools, kind) => {
      const { batchChecker } = await import('./batch/for-agents.ts');
      return batchChecker({ ...context, ...tools.session })(request, tools, kind);
    },
    readFile: readInputFile,
    hasBudgetName: context.globals.budgetName !== undefined,
    confirmOver,
    note: (text) => context.progress.note(text),
  });
  const { soft } = signals;
  const exitCode = !soft.aborted
    ? exitCodes.ok
    : soft.reason === 'SIGTERM'
      ? exitCodes.terminated
      : exitCodes.interrupted;
  return { json: {}, silent: true, exitCode };
}
