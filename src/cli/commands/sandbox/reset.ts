import { rm } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Settings } from '../../../config/resolve.ts';
import { ledgerFolder, sandboxFolder, sharedLedger } from '../../../flows/places.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { gatewayFolder } from './serve.ts';

/** `mgw sandbox reset`: forgets the sandbox's tasks, its bill and its ledger; real jobs are untouched. */
export function registerReset(command: Command, run: Run): void {
  command
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox reset\n  $ mgw sandbox reset --json')
    .action(() => run(command, reset));
}

async function reset(context: Context): Promise<Outcome> {
  const settings = await context.settings();
  const { reset: forget } = await import('../../../sandbox/bill.ts');
  forget(gatewayFolder(sandboxFolder(settings)));
  const play: Settings = { ...settings, sandbox: { value: true, source: 'default' } };
  await rm(ledgerFolder(play), {
    recursive: true,
    force: true,
  });
  const shared = sharedLedger(play);
  if (shared !== undefined) {
    const { dropLedger } = await import('../../../ledger/postgres/examine.ts');
    await dropLedger(shared);
  }
  context.progress.note('The sandbox has no tasks, no bill and no jobs any more.');
  return { json: { reset: true } };
}
