import { counted } from '../../printable.ts';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { MgwError, usageError } from '../../errors.ts';
import { sharedLedger } from '../../flows/settings.ts';
import type { StateUrl } from '../../state-url.ts';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { single } from '../options.ts';
import type { Outcome } from '../output/outcome.ts';

const explanation = `
MGW_STATE, or the setting "state" of the profile, is the address of the database: postgres://USER@HOST/DATABASE.
Set the password in PGPASSWORD or ~/.pgpass. For the parameters, see mgw help fleet.

Examples:
  $ export MGW_STATE=postgres://mgw@db.example.com/mgw
  $ mgw state init
  $ mgw state check`;

/** `mgw state init|check|copy`: manages a shared ledger on PostgreSQL (design 15). */
export function registerState(group: Command, run: Run): void {
  group.addHelpText('after', explanation);
  const init = group
    .command('init')
    .description('create the tables in the database; existing tables are unchanged')
    .addHelpText('after', '\nExamples:\n  $ mgw state init\n  $ mgw state init --profile work')
    .action(() => run(init, initState));
  const check = group
    .command('check')
    .description('check whether the database can be used safely')
    .addHelpText('after', '\nExamples:\n  $ mgw state check\n  $ mgw state check --json')
    .action(() => run(check, checkState));
  const copy = group
    .command('copy')
    .description(
      'copy jobs, keys and budgets between a folder and the database; stop all other mgw processes first',
    )
    .addOption(single('--from <dir>', 'copy this state folder into the database'))
    .addOption(single('--to <dir>', 'copy the database into this state folder'))
    .option('--keep-keys', "if a key names two different jobs, keep the target's job")
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw state copy --from ~/.local/state/mgw\n  $ mgw state copy --to ./state',
    )
    .action(() => run(copy, (context) => copyState(context, copy.opts<CopyOptions>())));
}

interface CopyOptions {
  from?: string;
  to?: string;
  keepKeys?: boolean;
}

async function copyState(context: Context, { from, to, keepKeys }: CopyOptions): Promise<Outcome> {
  const folder = resolve(from ?? to ?? '');
  if ((from === undefined) === (to === undefined)) throw usageError('Use either --from DIR or --to DIR.');
  const url = await requireShared(context);
  if (from !== undefined && !existsSync(join(folder, 'jobs')))
    throw usageError(`There is no ledger in ${folder}.`);
  const [{ openFileLedger }, copy] = await Promise.all([
    import('../../ledger/file-ledger.ts'),
    import('../../flows/copy-state.ts'),
  ]);
  const [shared, database] = [await context.ledger(), await context.database()];
  if (database === undefined) throw new MgwError('internal', 'a shared ledger without a database');
  const files = await openFileLedger(folder, () => context.clock.now());
  const places = [
    { name: folder, ledger: files, budgets: copy.budgetsOfFolder(folder) },
    { name: url.displayUrl, ledger: shared, budgets: copy.budgetsOfDatabase(database) },
  ] as const;
  const [source, target] = from === undefined ? [places[1], places[0]] : places;
  const repeat = ['mgw', 'state', 'copy', from === undefined ? '--to' : '--from', folder];
  const { jobs, budgets } = await copy.copyState(source, target, repeat, keepKeys);
  context.progress.note(
    `Copied ${counted(jobs, 'job')} and ${counted(budgets, 'budget')} to ${target.name}. Use ${target.name} from now on: ${source.name} will not record later payments.`,
  );
  return { json: { copied: { jobs, budgets, from: source.name, to: target.name } } };
}

async function initState(context: Context): Promise<Outcome> {
  const url = await requireShared(context);
  const { createLedger } = await import('../../ledger/postgres/examine.ts');
  const { version } = await createLedger(url, (text) => context.progress.note(text));
  context.progress.note(`The ledger in ${url.displayUrl} is ready.`);
  return { json: { state: { url: url.displayUrl, schema: url.schema, version } } };
}

async function checkState(context: Context): Promise<Outcome> {
  const url = await requireShared(context);
  const { examineLedger } = await import('../../ledger/postgres/examine.ts');
  const found = await examineLedger(url, context.clock);
  const { server, version, lagMs, jobs, warnings } = found;
  const lines = [
    `PostgreSQL ${server}, table version ${version}, ${counted(jobs, 'job')}`,
    `this machine's clock is ${(Math.abs(lagMs) / 1000).toFixed(1)} s ${lagMs < 0 ? 'behind' : 'ahead of'} the database's`,
    ...warnings,
  ];
  return { json: { state: { url: url.displayUrl, schema: url.schema, ...found } }, text: lines.join('\n') };
}

/** Returns the address of the shared ledger. @throws MgwError('usage') if there is none. */
async function requireShared(context: Context): Promise<StateUrl> {
  const url = sharedLedger(await context.settings());
  if (url !== undefined) return url;
  throw usageError(
    'No shared ledger is configured: jobs are stored in a folder on this machine. Set MGW_STATE=postgres://USER@HOST/DATABASE.',
    ['mgw', 'help', 'environment'],
  );
}
