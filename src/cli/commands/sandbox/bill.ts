import type { Command } from 'commander';
import type { BillLine } from '../../../sandbox/bill.ts';
import { sandboxFolder } from '../../../flows/places.ts';
import type { Context } from '../../context.ts';
import { table } from '../../output/table.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { gatewayFolder } from './serve.ts';
import { columnsOf } from '../../io.ts';

/** `mgw sandbox bill`: what would have been charged. */
export function registerBill(command: Command, run: Run): void {
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
    `${line.amount}${line.refunded ? ' (refunded)' : ''}`,
  ]);
  const head = ['at', 'area', 'model', 'task', 'for', 'credits'];
  return `${table(head, rows, width)}\n\ntotal: ${total} credits`;
}
