import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe } from 'vitest';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { createTables } from '../../../src/ledger/postgres/schema.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway, type BatchGateway } from '../gateway.ts';
import { Machines } from './machines.ts';

/** A fleet test's environment. Tests share the server and the database, which is empty when a test starts. */
export interface FleetPlace {
  server: PostgresServer;
  /** The port of the server, or of a pool in front of the server. */
  port: number;
  gateway: BatchGateway;
  /** Machines whose state is the database. */
  machines: Machines;
  /** Returns the database's address with the given parameters, such as `lease=2s`. */
  url(parameters?: string, port?: number): string;
  /** Runs statements in the database and returns the rows as lines, with tabs between fields. */
  query(statements: string): Promise<string>;
}

/** How a fleet test connects to the server. */
export interface FleetOptions {
  /** Whether to connect through PgBouncer in transaction mode. The tests are skipped if PgBouncer is not installed. */
  isPooled?: boolean;
  /** Parameters of the address that the machines use. */
  parameters?: string;
}

const database = 'fleet';

// Deleting the rows takes a tenth of the time of creating the tables. The connections of killed processes end first.
const emptyTables = `
  select pg_terminate_backend(pid, 60000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid();
  ${['events', 'jobs', 'names', 'claims', 'reservations', 'budgets', 'batches', 'paces', 'leases']
    .map((table) => `delete from mgw.${table};`)
    .join('\n  ')}`;

/** Defines tests on a separate PostgreSQL server. The tests are skipped if PostgreSQL is not installed. */
export function describeFleet(name: string, options: FleetOptions, tests: (place: FleetPlace) => void): void {
  describe.skipIf(!hasPostgres)(name, () => withPlaceOn(openedServer(), options, tests));
}

/** Defines tests on one PostgreSQL server to which machines connect directly, and then through a pool. */
export function describeBothWays(
  parameters: string,
  tests: (place: FleetPlace, isPooled: boolean) => void,
): void {
  describe.skipIf(!hasPostgres)('on PostgreSQL,', () => {
    const opened = openedServer();
    describe('directly,', () => withPlaceOn(opened, { parameters }, (place) => tests(place, false)));
    describe.skipIf(!hasPgBouncer)('through a transaction pool,', () =>
      withPlaceOn(opened, { parameters, isPooled: true }, (place) => tests(place, true)),
    );
  });
}

/** A server that a hook opens before the tests of the current block. */
interface OpenedServer {
  server?: PostgresServer;
}

function openedServer(): OpenedServer {
  const opened: OpenedServer = {};
  beforeAll(async () => {
    opened.server = await PostgresServer.open();
    await opened.server.query(`create database ${database}`);
  });
  afterAll(() => opened.server?.close());
  return opened;
}

function withPlaceOn(
  opened: OpenedServer,
  { isPooled = false, parameters = '' }: FleetOptions,
  tests: (place: FleetPlace) => void,
): void {
  const place = {} as FleetPlace;
  let pool: PgBouncer | undefined;
  let session: Session;
  beforeAll(async () => {
    const server = opened.server as PostgresServer;
    pool = isPooled ? await PgBouncer.open(server.port) : undefined;
    place.server = server;
    place.port = pool?.port ?? server.port;
    place.url = (more = '', port = place.port) => `${server.url(database, port)}?${more}`;
    session = new Session(server.url(database));
    place.query = (statements) => session.query(statements);
    const tables = new Database(parseStateUrl(place.url()));
    await createTables(tables);
    await tables.close();
  });
  afterAll(async () => {
    await session.close();
    await pool?.close();
  });
  beforeEach(async () => {
    onEnd(() => place.query(emptyTables).then(() => undefined));
    place.gateway = await startBatchGateway();
    onEnd(() => place.gateway.close());
    place.machines = new Machines(place.gateway.url, place.url(parameters));
  });
  tests(place);
}

/** A connection to a database, which is opened again after the server was killed. */
class Session {
  readonly #url: string;
  #client: Promise<pg.Client> | undefined;

  constructor(url: string) {
    this.#url = url;
  }

  /** Runs statements and returns the rows as lines, with tabs between fields. */
  async query(statements: string): Promise<string> {
    const client = await (this.#client ??= this.#connect());
    const results = [await client.query<string[]>({ text: statements, rowMode: 'array' })].flat();
    return results.flatMap(({ rows }) => rows.map((row) => row.join('\t'))).join('\n');
  }

  async close(): Promise<void> {
    await (await this.#client)?.end();
  }

  async #connect(): Promise<pg.Client> {
    const types = { getTypeParser: () => String };
    const client = new pg.Client({ connectionString: this.#url, types });
    client.on('error', () => (this.#client = undefined));
    await client.connect();
    return client;
  }
}
