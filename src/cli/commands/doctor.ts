import type { Command } from 'commander';
import { MgwError, toMgwError } from '../../errors.ts';
import type { Context } from '../context.ts';
import { sharedLedger } from '../../flows/places.ts';
import type { Check } from '../doctor/check.ts';
import { table } from '../output/table.ts';
import type { Outcome } from '../output/outcome.ts';
import type { Run } from '../action.ts';
import { columnsOf } from '../io.ts';

/** `mgw doctor`: tries the set-up from the config file to the key, and says what to do. Nothing is charged. */
export function registerDoctor(command: Command, run: Run): void {
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw doctor\n  $ mgw doctor --json --profile work\n  $ mgw --sandbox doctor',
    )
    .action(() => run(command, doctor));
}

async function doctor(context: Context): Promise<Outcome> {
  const checks = await examine(context);
  const rows = checks.flatMap(({ name, status, detail, hint }) => [
    [name, status, detail],
    ...(hint === undefined || status === 'ok' ? [] : [['', '', `→ ${hint}`]]),
  ]);
  const view = checks.map(({ error, ...check }) => ({ ...check, ...(error && { code: error.code }) }));
  return {
    json: { checks: view },
    text: table(['check', 'result', 'detail'], rows, columnsOf(context.io.stdout)),
    error: verdict(checks),
  };
}

async function examine(context: Context): Promise<Check[]> {
  const [local, network, { fail }] = await Promise.all([
    import('../doctor/local.ts'),
    import('../doctor/network.ts'),
    import('../doctor/check.ts'),
  ]);
  const first = [local.checkNode(), await local.checkConfigFile(context.io)];
  try {
    const settings = await context.settings();
    const state = [await local.checkStateFolder(settings.stateDir.value)];
    const shared = sharedLedger(settings);
    if (shared !== undefined)
      state.push(await (await import('../doctor/database.ts')).checkDatabase(shared, context));
    return [...first, ...state, ...(await network.checkNetwork(context, settings))];
  } catch (error) {
    // A broken config file has been told already.
    if (first.some(({ status }) => status === 'fail')) return first;
    return [...first, fail('settings', toMgwError(error), '"mgw config list" shows every setting.')];
  }
}

// The first failure decides: those after it often follow from it.
function verdict(checks: readonly Check[]): MgwError | undefined {
  const failed = checks.filter(({ status }) => status === 'fail');
  const worst = failed[0]?.error;
  if (worst === undefined) return undefined;
  const names = failed.map(({ name }) => name).join(', ');
  return new MgwError(worst.code, `Not well: ${names}. ${worst.message}`, { retry: 'safe', cause: worst });
}
