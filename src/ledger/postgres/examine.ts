import type { Clock } from '../../clock.ts';
import { MgwError } from '../../errors.ts';
import type { StateUrl } from '../../state-url.ts';
import { Database } from './database.ts';
import { tlsWarning } from './tls.ts';
import { identityOf, createTables, type LedgerIdentity } from './schema.ts';

/** Findings about the database behind a ledger. */
export interface Examination {
  /** PostgreSQL's version, such as `15.8`. */
  server: string;
  /** The tables' version. */
  version: number;
  jobs: number;
  /** How far this machine's clock is ahead of the database's clock, in ms. */
  lagMs: number;
  /** The duration of one statement, in ms. */
  tripMs: number;
  /** Problems that break one of mgw's guarantees, or would break it in a crash. */
  warnings: string[];
}

const minServerVersion = 140_000;

/**
 * Creates the missing tables of a ledger. `note` is called if the connection is not verified.
 * @throws the errors of {@link Database.query}
 */
export async function createLedger(
  url: StateUrl,
  note: (text: string) => void = () => undefined,
): Promise<LedgerIdentity> {
  const warning = tlsWarning(url);
  if (warning !== undefined) note(warning);
  return withDatabase(url, createTables);
}

/** Removes a sandbox ledger with all its data. */
export async function dropLedger(url: StateUrl): Promise<void> {
  await withDatabase(url, (database) => database.query(`DROP SCHEMA IF EXISTS ${url.schema} CASCADE`));
}

async function withDatabase<T>(url: StateUrl, use: (database: Database) => Promise<T>): Promise<T> {
  const database = new Database(url);
  try {
    return await use(database);
  } finally {
    await database.close();
  }
}

/**
 * Examines the database behind a ledger without changing it. `clock` is this machine's clock.
 * @throws MgwError('config') if the database contains no ledger or cannot be used safely; DatabaseLost if it does not
 * respond.
 */
export async function examineLedger(
  url: StateUrl,
  clock: Pick<Clock, 'now' | 'monotonic'>,
): Promise<Examination> {
  return withDatabase(url, async (database) => {
    const { version } = await identityOf(database);
    const sentAt = clock.monotonic();
    const [row] = await database.query<Settings>(
      `SELECT current_setting('server_version') AS server, current_setting('server_version_num')::int AS number,
         extract(epoch FROM clock_timestamp()) * 1000 AS clock, current_setting('fsync') AS fsync,
         current_setting('full_page_writes') AS pages, (SELECT count(*)::int FROM ${database.table('jobs')}) AS jobs`,
    );
    const tripMs = clock.monotonic() - sentAt;
    const receivedAt = clock.now();
    await requireRights(database);
    const { server = '', number = 0, clock: databaseTime = 0, jobs = 0 } = row ?? {};
    const lagMs = Math.round(receivedAt - tripMs / 2 - Number(databaseTime));
    const routes = await routeWarnings(database);
    const warnings = [tlsWarning(url), ...routes, ...warningsOf(row, number, lagMs)].filter(
      (text) => text !== undefined,
    );
    return { server, version, jobs, lagMs, tripMs, warnings };
  });
}

// Throws if the role cannot read and write the tables. A standby is also read-only, but `routeWarnings` reports it.
async function requireRights(database: Database): Promise<void> {
  const { displayUrl, schema } = database.url;
  const rights = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];
  const [access] = await database.query<{ closed: string | null; is_read_only: boolean }>(
    `SELECT string_agg(relname, ', ' ORDER BY relname) AS closed,
       current_setting('transaction_read_only')::boolean AND NOT pg_is_in_recovery() AS is_read_only
     FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'
       AND NOT (${rights.map((right) => `has_table_privilege(oid, '${right}')`).join(' AND ')})`,
    [schema],
  );
  if (access?.is_read_only === true)
    throw new MgwError(
      'config',
      `The role of ${displayUrl} is read-only, because default_transaction_read_only is on. Turn it off for this role.`,
    );
  if (access?.closed)
    throw new MgwError(
      'config',
      `The role of ${displayUrl} lacks permission to read and write these tables: ${access.closed}. Run: GRANT ${rights.join(', ')} ON ALL TABLES IN SCHEMA ${schema} TO ROLE.`,
    );
}

/** Several connections are examined concurrently, because a pooler may route each of them to a different server. */
const connectionNumbers = [1, 2, 3, 4];

// Returns warnings about a pooler or proxy between mgw and the database.
async function routeWarnings(database: Database): Promise<string[]> {
  const endpoints = await Promise.all(
    connectionNumbers.map(() =>
      database.query<{ ledger: string; standby: boolean }>(
        `SELECT ledger, pg_is_in_recovery() AS standby FROM ${database.table('meta')}`,
      ),
    ),
  );
  const warnings: [boolean, string][] = [
    [
      endpoints.flat().some(({ standby }) => standby),
      'The server is a standby, which does not accept writes and may lag. Use the primary, or a pooler that does not distribute reads across servers.',
    ],
    [
      new Set(endpoints.flat().map(({ ledger }) => ledger)).size > 1,
      'Connections lead to different databases. Use one server, or a pooler in front of one server.',
    ],
    [
      !(await database.supportsTransactions()),
      'The pooler in front of the database does not support transactions. Set pool_mode = transaction (PgBouncer).',
    ],
  ];
  return warnings.filter(([isTrue]) => isTrue).map(([, text]) => text);
}

interface Settings extends Record<string, unknown> {
  server: string;
  number: number;
  clock: string | number;
  fsync: string;
  pages: string;
  jobs: number;
}

function warningsOf(settings: Settings | undefined, number: number, lagMs: number): string[] {
  const warnings: [boolean, string][] = [
    [number < minServerVersion, 'This PostgreSQL server is too old: mgw requires version 14 or later.'],
    [
      settings?.fsync === 'off',
      'fsync is off: a crash of the machine loses confirmed records, and mgw may pay twice.',
    ],
    [settings?.pages === 'off', 'full_page_writes is off: a crash of the machine may damage the tables.'],
    [
      Math.abs(lagMs) > 5000,
      "This machine's clock differs from the database's clock: job times and budget days may be wrong.",
    ],
  ];
  return warnings.filter(([isTrue]) => isTrue).map(([, text]) => text);
}
