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
Put the password in PGPASSWORD or ~/.pgpass. See mgw help fleet for the parameters.

Examples:
  $ export MGW_STATE=postgres://mgw@db.example.com/mgw
  $ mgw state init
  $ mgw state check`;

/** `mgw state init|check|copy`: manages the ledger that several machines share, on PostgreSQL (design 15). */
export function registerState(group: Command, run: Run): void {
  group.addHelpText('after', explanation);
  const init = group
    .command('init')
    .description('create the tables in the database; existing tables stay as they are')
    .addHelpText('after', '\nExamples:\n  $ mgw state init\n  $ mgw state init --profile work')
    .action(() => run(init, makeState));
  const check = group
    .command('check')
    .description('check whether the database can be used safely')
    .addHelpText('after', '\nExamples:\n  $ mgw state check\n  $ mgw state check --json')
    .action(() => run(check, checkState));
  const copy = group
    .command('copy')
    .description(
      'copy jobs, keys and budgets from a folder into the database or back; no other mgw may be running',
    )
    .addOption(single('--from <dir>', 'copy this state folder into the database'))
    .addOption(single('--to <dir>', 'copy the database into this state folder'))
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw state copy --from ~/.local/state/mgw\n  $ mgw state copy --to ./state',
    )
    .action(() => run(copy, (context) => copyState(context, copy.opts<CopyOptions>())));
}

interface CopyOptions {
  from?: string;
  to?: string;
}

async function copyState(context: Context, { from, to }: CopyOptions): Promise<Outcome> {
  const folder = resolve(from ?? to ?? '');
  if ((from === undefined) === (to === undefined)) throw usageError('Give either --from DIR or --to DIR.');
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
  const jobs = from === undefined ? await copy.copyJobs(shared, files) : await copy.copyJobs(files, shared);
  const budgets =
    from === undefined
      ? await copy.copyBudgetsOut(database, folder)
      : await copy.copyBudgetsIn(folder, database);
  const [source, target] = from === undefined ? [url.displayUrl, folder] : [folder, url.displayUrl];
  context.progress.note(
    `Copied ${counted(jobs, 'job')} and ${counted(budgets, 'budget')} to ${target}. Use ${target} from now on: ${source} will not know of later payments.`,
  );
  return { json: { copied: { jobs, budgets, from: source, to: target } } };
}

async function makeState(context: Context): Promise<Outcome> {
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
    `PostgreSQL ${server}, version ${version} of the tables, ${counted(jobs, 'job')}`,
    `the clock here is ${(Math.abs(lagMs) / 1000).toFixed(1)} s ${lagMs < 0 ? 'behind' : 'ahead of'} the database's`,
    ...warnings,
  ];
  return { json: { state: { url: url.displayUrl, schema: url.schema, ...found } }, text: lines.join('\n') };
}

/** Returns the address of the shared ledger. @throws MgwError('usage') if there is none. */
async function requireShared(context: Context): Promise<StateUrl> {
  const url = sharedLedger(await context.settings());
  if (url !== undefined) return url;
  throw usageError(
    'No shared ledger is configured: jobs are kept in a folder of this machine. Set MGW_STATE=postgres://USER@HOST/DATABASE.',
    ['mgw', 'help', 'environment'],
  );
}
