import type { StateUrl } from '../../state-url.ts';
import { Database, tlsWarning } from './database.ts';
import { identityOf, makeTables, type LedgerIdentity } from './schema.ts';

/** What was found out about the database behind a ledger. */
export interface Examined {
  /** Of PostgreSQL: `15.8`. */
  server: string;
  /** Of the tables. */
  version: number;
  jobs: number;
  /** How far the clock of this machine is ahead of the database's, ms. */
  lagMs: number;
  /** How long one statement takes, ms. */
  tripMs: number;
  /** What breaks a promise, or would in a crash. */
  warnings: string[];
}

const oldestServer = 140_000;

/** Makes the tables of a ledger if they are missing. @throws MgwError as the database's queries do. */
export async function makeLedger(url: StateUrl): Promise<LedgerIdentity> {
  const database = new Database(url);
  try {
    return await makeTables(database);
  } finally {
    await database.close();
  }
}

/** Removes a ledger of play money, with all that is in it. */
export async function dropLedger(url: StateUrl): Promise<void> {
  const database = new Database(url);
  try {
    await database.query(`DROP SCHEMA IF EXISTS ${url.schema} CASCADE`);
  } finally {
    await database.close();
  }
}

/**
 * Looks at the database behind a ledger; nothing is changed. `now` is the clock of this machine.
 * @throws MgwError('config') if there is no ledger in it, or the database cannot be used safely; DatabaseGone if it does
 * not respond.
 */
export async function examineLedger(url: StateUrl, now: () => number): Promise<Examined> {
  const database = new Database(url);
  try {
    const { version } = await identityOf(database);
    const sent = performance.now();
    const [row] = await database.query<Settings>(
      `SELECT current_setting('server_version') AS server, current_setting('server_version_num')::int AS number,
         extract(epoch FROM clock_timestamp()) * 1000 AS clock, current_setting('fsync') AS fsync,
         current_setting('full_page_writes') AS pages, (SELECT count(*)::int FROM ${database.table('jobs')}) AS jobs`,
    );
    const tripMs = performance.now() - sent;
    const { server = '', number = 0, clock = 0, jobs = 0 } = row ?? {};
    const lagMs = Math.round(now() - tripMs / 2 - Number(clock));
    const warnings = [
      ...[tlsWarning(url) ?? []].flat(),
      ...(await wayWarnings(database)),
      ...warningsOf(row, number, lagMs),
    ];
    return { server, version, jobs, lagMs, tripMs, warnings };
  } finally {
    await database.close();
  }
}

/** So many connections are looked at, at the same time: a pool may lead each of them elsewhere. */
const looks = [1, 2, 3, 4];

// What is between mgw and the database.
async function wayWarnings(database: Database): Promise<string[]> {
  const ends = await Promise.all(
    looks.map(() =>
      database.query<{ ledger: string; standby: boolean }>(
        `SELECT ledger, pg_is_in_recovery() AS standby FROM ${database.table('meta')}`,
      ),
    ),
  );
  const warnings: [boolean, string][] = [
    [
      ends.flat().some(({ standby }) => standby),
      'A standby answers, which takes no writes and may be behind: name the primary, and let no pool divide what is read among servers.',
    ],
    [
      new Set(ends.flat().map(({ ledger }) => ledger)).size > 1,
      'Connections lead to different databases: name one server, or a pool before one.',
    ],
    [
      !(await database.knowsTransactions()),
      'The pool before the database takes no transactions: set pool_mode = transaction (PgBouncer), which is what mgw is made for.',
    ],
  ];
  return warnings.filter(([isSo]) => isSo).map(([, text]) => text);
}

interface Settings extends Record<string, unknown> {
  server: string;
  number: number;
  clock: string | number;
  fsync: string;
  pages: string;
  jobs: number;
}

function warningsOf(found: Settings | undefined, number: number, lagMs: number): string[] {
  const warnings: [boolean, string][] = [
    [number < oldestServer, 'PostgreSQL is older than 14, which mgw is made for.'],
    [
      found?.fsync === 'off',
      'fsync is off: a crash of the machine loses what was confirmed, and mgw may pay twice.',
    ],
    [found?.pages === 'off', 'full_page_writes is off: a crash of the machine may damage the tables.'],
    [
      Math.abs(lagMs) > 5000,
      'The clocks differ: the times of jobs and of budgets for a day or a month do too.',
    ],
  ];
  return warnings.filter(([isSo]) => isSo).map(([, text]) => text);
}
