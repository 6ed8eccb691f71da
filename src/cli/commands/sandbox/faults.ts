import type { Command } from 'commander';
import type { Context } from '../../context.ts';
import { table } from '../../output/table.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { columnsOf } from '../../io.ts';

/** `mgw sandbox faults`: every fault by name. */
export function registerFaults(command: Command, run: Run): void {
  command
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox faults\n  $ mgw sandbox faults --json')
    .action(() => run(command, faults));
}

async function faults({ io }: Context): Promise<Outcome> {
  const { FAULTS } = await import('../../../sandbox/fault-catalogue.ts');
  const rows = FAULTS.map(({ name, on, does }) => [name, on, does]);
  return { json: { faults: FAULTS }, text: table(['name', 'on', 'does'], rows, columnsOf(io.stdout)) };
}
