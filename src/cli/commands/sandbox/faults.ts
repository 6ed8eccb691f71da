import type { Command } from 'commander';
import type { Context } from '../../context.ts';
import { table } from '../../output/table.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { columnsOf } from '../../io.ts';

/** `mgw sandbox faults`: every fault by name. */
export function registerFaults(sandbox: Command, run: Run): void {
  const command = sandbox
    .command('faults')
    .description(
      'the faults that --fault takes: name, namexN (the first N times), name@P% (where in the answer; chaos: how likely)',
    )
    .addHelpText('after', '\nExamples:\n  $ mgw sandbox faults\n  $ mgw sandbox faults --json')
    .action(() => run(command, faults));
}

async function faults({ io }: Context): Promise<Outcome> {
  const { FAULTS } = await import('../../../sandbox/fault-catalogue.ts');
  const rows = FAULTS.map(({ name, on, does }) => [name, on, does]);
  return { json: { faults: FAULTS }, text: table(['name', 'on', 'does'], rows, columnsOf(io.stdout)) };
}
