import type { Command } from 'commander';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { type Check, fail } from '../doctor/local.ts';
import { columnsOf } from '../io.ts';
import { textWithGlobals } from '../output/human.ts';
import type { Outcome } from '../output/outcome.ts';
import { table } from '../output/table.ts';
import { MgwError } from '../../errors.ts';
import { ledgerFolder, sharedLedger } from '../../flows/settings.ts';

/** `mgw doctor`: checks the setup from the config file to the key, and suggests fixes. Free of charge. */
export function registerDoctor(command: Command, run: Run): void {
  command
    .option('--update', 'check for a newer version at the address in the update_url setting')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw doctor\n  $ mgw doctor --json --profile work\n  $ mgw --sandbox doctor',
    )
    .action(({ update }: { update?: boolean }) => run(command, (context) => doctor(context, update)));
}

async function doctor(context: Context, update = false): Promise<Outcome> {
  const checks = (await runChecks(context, update)).map((check) => ({
    ...check,
    ...(check.hint !== undefined && { hint: textWithGlobals(check.hint, context.globals) }),
  }));
  const rows = checks.flatMap(({ name, status, detail, hint }) => [
    [name, status, detail],
    ...(hint === undefined || status === 'ok' ? [] : [['', '', `→ ${hint}`]]),
  ]);
  const view = checks.map(({ error, ...check }) => ({ ...check, ...(error && { code: error.code }) }));
  return {
    json: { checks: view },
    text: table(['check', 'result', 'detail'], rows, columnsOf(context.io.stdout)),
    error: overallError(checks),
  };
}

async function runChecks(context: Context, update: boolean): Promise<Check[]> {
  const [local, network] = await Promise.all([import('../doctor/local.ts'), import('../doctor/network.ts')]);
  const earlyChecks = [local.checkNode(), await local.checkConfigFile(context.io)];
  try {
    const settings = await context.settings();
    const folder = settings.stateDir.value;
    const shared = sharedLedger(settings);
    const checks = [
      ...earlyChecks,
      await local.checkStateFolder(folder),
      local.checkUnwritten(folder),
      await local.checkUploads(ledgerFolder(settings)),
      shared && (await network.checkDatabase(shared, context)),
      ...(await network.checkNetwork(context, settings)),
      await network.checkStore(context, settings),
      // mgw checks for updates only with --update.
      update ? await network.checkUpdate(settings) : undefined,
    ];
    return checks.filter((check) => check !== undefined);
  } catch (error) {
    // If the config file is invalid, the earlier checks have already reported it.
    if (earlyChecks.some(({ status }) => status === 'fail')) return earlyChecks;
    return [
      ...earlyChecks,
      fail('settings', error, 'To list the settings: mgw config list. To remove one: mgw config unset NAME'),
    ];
  }
}

// The first failure determines the exit code, because it often causes the others.
function overallError(checks: readonly Check[]): MgwError | undefined {
  const failed = checks.filter(({ status }) => status === 'fail');
  const firstError = failed[0]?.error;
  if (firstError === undefined) return undefined;
  const names = failed.map(({ name }) => name).join(', ');
  const summary = failed.length === 1 ? '1 check failed' : `${failed.length} checks failed`;
  return new MgwError(firstError.code, `${summary}: ${names}. ${firstError.message}`, {
    retry: 'safe',
    next: firstError.next,
    cause: firstError,
  });
}
