import { rm } from 'node:fs/promises';
import type { Command } from 'commander';
import { ledgerFolder, sandboxFolder } from '../../../session/places.ts';
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
  await rm(ledgerFolder({ ...settings, sandbox: { value: true, source: 'default' } }), {
    recursive: true,
    force: true,
  });
  context.progress.note('The sandbox has no tasks, no bill and no jobs any more.');
  return { json: { reset: true } };
}
