import { randomUUID } from 'node:crypto';
import { MgwError } from '../../errors.ts';
import type { Database } from './database.ts';

/** The table version that this version of mgw uses. */
export const schemaVersion = 2;

/** Identifies a ledger. */
export interface LedgerIdentity {
  /** A random id, created with the ledger. It is the same for every URL of the database. */
  ledger: string;
  version: number;
}

/**
 * Reads the identity of the ledger in a database, after checking that no other role can run code through its tables.
 * @throws MgwError('config') if there is no ledger or its tables have a different version; or the errors of {@link
 * requireSafe}
 */
export async function identityOf(database: Database): Promise<LedgerIdentity> {
  await requireSafe(database);
  const rows = await database.query<{ ledger: string; version: number }>(
    `SELECT ledger, version FROM ${database.table('meta')}`,
  );
  const [identity] = rows;
  const { displayUrl } = database.url;
  if (identity === undefined)
    throw new MgwError('config', `The ledger in ${displayUrl} is incomplete.`, {
      next: ['mgw', 'state', 'init'],
    });
  if (identity.version !== schemaVersion) throw otherVersionError(displayUrl, identity.version);
  return identity;
}

function otherVersionError(displayUrl: string, version: number): MgwError {
  const mismatchText = `The ledger in ${displayUrl} has tables of version ${version}, but this mgw requires version ${schemaVersion}.`;
  return new MgwError(
    'config',
    version > schemaVersion
      ? `${mismatchText} Update mgw.`
      : `${mismatchText} No released version of mgw created such tables: use another schema or database, or drop this schema if it contains nothing of value, and run mgw state init.`,
  );
}

/**
 * Refuses a database whose encoding cannot represent every text, and a schema or table that another role owns. That
 * role could change mgw's data or run code as mgw's role (design 15).
 * @throws MgwError('config') in these cases.
 */
async function requireSafe(database: Database): Promise<void> {
  const { displayUrl, schema } = database.url;
  const [row] = await database.query<{ encoding: string; foreign_names: string | null }>(
    `SELECT pg_catalog.current_setting('server_encoding') AS encoding, (
       SELECT pg_catalog.string_agg(owned.name, ', ') FROM (
         SELECT nspname::text AS name, nspowner AS owner FROM pg_catalog.pg_namespace WHERE nspname = $1::name
         UNION ALL
         SELECT relname::text, relowner FROM pg_catalog.pg_class
         WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1::name)) owned
       WHERE NOT EXISTS (
         SELECT FROM pg_catalog.pg_roles self
         WHERE self.rolname = current_user AND (self.oid = owned.owner
           OR (NOT self.rolsuper AND pg_catalog.pg_has_role(self.oid, owned.owner, 'USAGE'))))) AS foreign_names`,
    [schema],
  );
  if (row?.encoding !== 'UTF8')
    throw new MgwError(
      'config',
      `The database ${displayUrl} has the encoding ${row?.encoding ?? 'unknown'}, which cannot represent every text. Create one with the encoding UTF8, and use its URL.`,
      { next: createCommand(database) },
    );
  if (row.foreign_names === null) return;
  const names = row.foreign_names.split(', ');
  const shownNames = names.length > 4 ? [...names.slice(0, 3), `and ${names.length - 3} others`] : names;
  throw new MgwError(
    'config',
    `The role of ${displayUrl} does not own these parts of the schema ${schema}: ${shownNames.join(', ')}. Make it their owner if you trust their contents, use the role that owns them, or use another schema (?schema=NAME).`,
  );
}

// Returns the command that creates a database next to the configured one.
function createCommand({ url: { href } }: Database): string[] {
  const { hostname, port, username, pathname } = new URL(href);
  const flag = (name: string, value: string): string[] => (value === '' ? [] : [name, value]);
  const place = [...flag('-h', hostname), ...flag('-p', port), ...flag('-U', decodeURIComponent(username))];
  const name = `${decodeURIComponent(pathname.slice(1))}_utf8`;
  return ['createdb', ...place, '-E', 'UTF8', '-T', 'template0', name];
}

/**
 * Creates the missing tables. Any number of processes may do so concurrently. Existing tables are not changed.
 * @throws MgwError('config') if the existing tables have a different version; or the errors of {@link Database.query}
 */
export async function createTables(database: Database): Promise<LedgerIdentity> {
  await requireSafe(database);
  await refuseOtherVersion(database);
  // A query without values is one transaction. The lock is released when the transaction ends.
  const { schema } = database.url;
  const statements = [
    `SELECT pg_advisory_xact_lock(hashtext('mgw ${schema}'))`,
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    ...tables(schema),
    `INSERT INTO ${schema}.meta (ledger, version) SELECT '${randomUUID()}', ${schemaVersion}
       WHERE NOT EXISTS (SELECT FROM ${schema}.meta)`,
  ];
  await database.query(statements.join(';\n'));
  return identityOf(database);
}

async function refuseOtherVersion(database: Database): Promise<void> {
  const meta = database.table('meta');
  const [table] = await database.query<{ name: string | null }>(
    `SELECT pg_catalog.to_regclass($1)::text AS name`,
    [meta],
  );
  if (table?.name == null) return;
  const [identity] = await database.query<{ version: number }>(`SELECT version FROM ${meta}`);
  if (identity !== undefined && identity.version !== schemaVersion)
    throw otherVersionError(database.url.displayUrl, identity.version);
}

function tables(schema: string): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${schema}.meta (ledger uuid NOT NULL, version integer NOT NULL)`,
    // A process is alive while its row exists and has not expired. To declare a process dead, another process first
    // deletes the row.
    `CREATE TABLE IF NOT EXISTS ${schema}.leases (
       id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, instance text NOT NULL,
       host text NOT NULL, pid integer NOT NULL, until timestamptz NOT NULL)`,
    // n is the number of a job's events. state is the job's state after the first `folded` events, for searches.
    `CREATE TABLE IF NOT EXISTS ${schema}.jobs (
       id text COLLATE "C" PRIMARY KEY, n integer NOT NULL, folded integer NOT NULL, state text NOT NULL)`,
    `CREATE INDEX IF NOT EXISTS jobs_state ON ${schema}.jobs (state, id)`,
    `CREATE INDEX IF NOT EXISTS jobs_unfolded ON ${schema}.jobs (id) WHERE folded < n`,
    // line has the same format as in plain files. uid prevents a second row if an event is sent twice.
    `CREATE TABLE IF NOT EXISTS ${schema}.events (
       job text COLLATE "C" NOT NULL, n integer NOT NULL, uid uuid NOT NULL UNIQUE, line text NOT NULL,
       PRIMARY KEY (job, n))`,
    `CREATE TABLE IF NOT EXISTS ${schema}.names (
       hash text COLLATE "C" NOT NULL, job text COLLATE "C" NOT NULL,
       made bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (hash, job))`,
    `CREATE INDEX IF NOT EXISTS names_job ON ${schema}.names (job)`,
    `CREATE TABLE IF NOT EXISTS ${schema}.claims (
       name text COLLATE "C" PRIMARY KEY, content text NOT NULL, token uuid NOT NULL, tentative boolean NOT NULL)`,
    // Sums of the reserved and the settled amounts: in total, for the row's day and for the row's month. Amounts are
    // exact.
    `CREATE TABLE IF NOT EXISTS ${schema}.budgets (
       kind text NOT NULL, name text COLLATE "C" NOT NULL,
       amount numeric, per text, held numeric NOT NULL DEFAULT 0, kept numeric NOT NULL DEFAULT 0,
       day text COLLATE "C" NOT NULL DEFAULT '', day_held numeric NOT NULL DEFAULT 0, day_kept numeric NOT NULL DEFAULT 0,
       month text COLLATE "C" NOT NULL DEFAULT '', month_held numeric NOT NULL DEFAULT 0, month_kept numeric NOT NULL DEFAULT 0,
       PRIMARY KEY (kind, name))`,
    `CREATE TABLE IF NOT EXISTS ${schema}.reservations (
       id text COLLATE "C" NOT NULL, kind text NOT NULL, budget text COLLATE "C" NOT NULL,
       amount numeric NOT NULL, at text COLLATE "C" NOT NULL, owner text NOT NULL, state text NOT NULL,
       PRIMARY KEY (kind, budget, id))`,
    `CREATE INDEX IF NOT EXISTS reservations_open ON ${schema}.reservations (kind, budget) WHERE state = 'reserved'`,
    // Enqueued batches and their rows: waiting, taken (until the lease ends), ended, or quarantined.
    `CREATE TABLE IF NOT EXISTS ${schema}.batches (
       name text COLLATE "C" PRIMARY KEY, gateway text NOT NULL, head text NOT NULL,
       created_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
    `CREATE TABLE IF NOT EXISTS ${schema}.batch_rows (
       batch text COLLATE "C" NOT NULL REFERENCES ${schema}.batches (name) ON DELETE CASCADE,
       id text COLLATE "C" NOT NULL, position bigint GENERATED ALWAYS AS IDENTITY, hash text NOT NULL,
       content text NOT NULL, state text NOT NULL DEFAULT 'waiting', lease bigint,
       not_before timestamptz, lost integer NOT NULL DEFAULT 0, outcome text, why text, PRIMARY KEY (batch, id))`,
    `CREATE INDEX IF NOT EXISTS batch_rows_order ON ${schema}.batch_rows (batch, position)`,
    `CREATE INDEX IF NOT EXISTS batch_rows_waiting ON ${schema}.batch_rows (batch, position) WHERE state = 'waiting'`,
    `CREATE INDEX IF NOT EXISTS batch_rows_taken ON ${schema}.batch_rows (lease) WHERE state = 'taken'`,
    // The pace of a batch across all machines: maximum number of tasks in progress, time of the next submission, and
    // end of a delay requested by the gateway. A row of `places` is a task in progress until its lease ends.
    `CREATE TABLE IF NOT EXISTS ${schema}.paces (
       batch text COLLATE "C" PRIMARY KEY, most integer NOT NULL, accepted integer NOT NULL DEFAULT 0,
       epoch bigint NOT NULL DEFAULT 0, next_turn timestamptz NOT NULL DEFAULT clock_timestamp(),
       held_until timestamptz NOT NULL DEFAULT clock_timestamp())`,
    `CREATE TABLE IF NOT EXISTS ${schema}.places (
       batch text COLLATE "C" NOT NULL REFERENCES ${schema}.paces (batch) ON DELETE CASCADE,
       number integer NOT NULL, lease bigint, PRIMARY KEY (batch, number))`,
  ];
}
