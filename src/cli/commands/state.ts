import type { Command } from 'commander';
import { usageError } from '../../errors.ts';
import { sharedLedger } from '../../session/places.ts';
import type { StateUrl } from '../../state-url.ts';
import type { Run } from '../action.ts';
import type { Context } from '../context.ts';
import type { Outcome } from '../output/outcome.ts';

const explanation = `
MGW_STATE, or the setting "state" of the profile, is the address of the database: postgres://USER@HOST/DATABASE.
Its password is best left out of it: PGPASSWORD and ~/.pgpass are asked for it.

Examples:
  $ export MGW_STATE=postgres://mgw@db.example.com/mgw
  $ mgw state init
  $ mgw state check`;

/** `mgw state init|check`: the ledger that several machines share, on PostgreSQL (design 15). */
export function registerState(group: Command, run: Run): void {
  group.addHelpText('after', explanation);
  const init = group
    .command('init')
    .description('make the tables in the database; those that are there stay as they are')
    .addHelpText('after', '\nExamples:\n  $ mgw state init\n  $ mgw state init --profile fleet')
    .action(() => run(init, makeState));
  const check = group
    .command('check')
    .description('look whether the database can be used, and what would break a promise')
    .addHelpText('after', '\nExamples:\n  $ mgw state check\n  $ mgw state check --json')
    .action(() => run(check, checkState));
}

async function makeState(context: Context): Promise<Outcome> {
  const url = await requireShared(context);
  const { makeLedger } = await import('../../ledger/postgres/examine.ts');
  const { version } = await makeLedger(url);
  context.progress.note(`The ledger in ${url.shown} is ready.`);
  return { json: { state: { url: url.shown, schema: url.schema, version } } };
}

async function checkState(context: Context): Promise<Outcome> {
  const url = await requireShared(context);
  const { examineLedger } = await import('../../ledger/postgres/examine.ts');
  const found = await examineLedger(url, () => context.clock.now());
  const { server, version, lagMs, jobs, warnings } = found;
  const lines = [
    `PostgreSQL ${server}, version ${version} of the tables, ${jobs} jobs`,
    `the clock here is ${(Math.abs(lagMs) / 1000).toFixed(1)} s ${lagMs < 0 ? 'behind' : 'ahead of'} the database's`,
    ...warnings,
  ];
  return { json: { state: { url: url.shown, schema: url.schema, ...found } }, text: lines.join('\n') };
}

/** The ledger that is shared. @throws MgwError('usage') where there is none. */
export async function requireShared(context: Context): Promise<StateUrl> {
  const url = sharedLedger(await context.settings());
  if (url !== undefined) return url;
  throw usageError(
    'No shared ledger is configured: jobs are kept in a folder of this machine. Set MGW_STATE=postgres://USER@HOST/DATABASE.',
    ['mgw', 'help', 'environment'],
  );
}
