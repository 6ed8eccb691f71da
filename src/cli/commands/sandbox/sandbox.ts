import { rm } from 'node:fs/promises';
import type { Command } from 'commander';
import { addCommands, type Run } from '../../command-tree.ts';
import { gatewayFolder } from './serve.ts';
import type { Context } from '../../context.ts';
import { columnsOf } from '../../io.ts';
import type { Outcome } from '../../output/outcome.ts';
import { table } from '../../output/table.ts';
import type { Settings } from '../../../config/resolve.ts';
import { ledgerFolder, sandboxFolder, sharedLedger } from '../../../flows/settings.ts';
import type { BillLine } from '../../../sandbox/bill.ts';

/** `mgw sandbox start|exec|bill|reset|faults`: runs a simulated gateway, offline and free of charge. */
export function registerSandbox(sandbox: Command, run: Run): void {
  addCommands(sandbox, run, {
    start: {
      about: 'serve the sandbox on loopback until Ctrl-C; prints the variables to export',
      load: async () => (await import('./serve.ts')).registerStart,
    },
    exec: {
      about: "run a script against a new sandbox, and exit with the script's exit code",
      load: async () => (await import('./exec.ts')).registerExec,
    },
    bill: {
      about: 'show what would have been charged',
      load: () => Promise.resolve(registerBill),
    },
    reset: {
      about: "delete the sandbox's tasks, bill and jobs; real jobs are unaffected",
      load: () => Promise.resolve(registerReset),
    },
    faults: {
      about:
        'list the faults for --fault: name, namexN (the first N times), name@P% (position in the response; for chaos, probability); and the words in a prompt that cause them',
      load: () => Promise.resolve(registerFaults),
    },
  });
}

/** `mgw sandbox bill`: prints what would have been charged. */
function registerBill(command: Command, run: Run): void {
  command
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox bill\n  $ mgw sandbox bill --json')
    .action(() => run(command, bill));
}

async function bill(context: Context): Promise<Outcome> {
  const { readBill, totalOf } = await import('../../../sandbox/bill.ts');
  const lines = readBill(gatewayFolder(sandboxFolder(await context.settings())));
  const total = totalOf(lines);
  return { json: { bill: lines, total }, text: billText(lines, total, columnsOf(context.io.stdout)) };
}

function billText(lines: readonly BillLine[], total: number, width: number | undefined): string {
  const rows = lines.map((line) => [
    new Date(line.at).toISOString(),
    line.area,
    line.model,
    line.task,
    line.seconds === undefined ? `${line.characters ?? 0} characters` : `${line.seconds} s`,
    `${line.amount}${line.extra === undefined ? '' : ` (${line.extra} extra)`}${line.refunded ? ' (refunded)' : ''}`,
  ]);
  const head = ['at', 'area', 'model', 'task', 'for', 'credits'];
  return `${table(head, rows, width)}\n\ntotal: ${total} credits`;
}

/** `mgw sandbox reset`: removes the sandbox's tasks, bill and ledger. Real jobs are unaffected. */
function registerReset(command: Command, run: Run): void {
  command
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox reset\n  $ mgw sandbox reset --json')
    .action(() => run(command, reset));
}

async function reset(context: Context): Promise<Outcome> {
  const settings = await context.settings();
  const { reset: resetGateway } = await import('../../../sandbox/state.ts');
  resetGateway(gatewayFolder(sandboxFolder(settings)));
  const sandboxSettings: Settings = { ...settings, sandbox: { value: true, source: 'default' } };
  await rm(ledgerFolder(sandboxSettings), {
    recursive: true,
    force: true,
  });
  const shared = sharedLedger(sandboxSettings);
  if (shared !== undefined) {
    const { dropLedger } = await import('../../../ledger/postgres/examine.ts');
    await dropLedger(shared);
  }
  context.progress.note("The sandbox's tasks, bill and jobs were removed.");
  return { json: { reset: true } };
}

/** `mgw sandbox faults`: lists every fault, and the prompt words that determine a task's outcome. */
function registerFaults(command: Command, run: Run): void {
  command
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox faults\n  $ mgw sandbox faults --json')
    .action(() => run(command, faults));
}

async function faults({ io }: Context): Promise<Outcome> {
  const { allFaults } = await import('../../../sandbox/faults.ts');
  const { magicWords } = await import('../../../sandbox/tasks.ts');
  const width = columnsOf(io.stdout);
  const names = allFaults.map(({ name, on, does }) => [name, on, does]);
  const words = magicWords.map(({ word, areas, does }) => [word, areas, does]);
  const text = [
    table(['name', 'on', 'does'], names, width),
    table(['word in a prompt', 'on', 'does'], words, width),
  ];
  return { json: { faults: allFaults, magic_words: magicWords }, text: text.join('\n\n') };
}
