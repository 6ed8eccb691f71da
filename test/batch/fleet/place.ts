import { afterAll, beforeAll, beforeEach, describe } from 'vitest';
import { onEnd } from '../../support/clean-ups.ts';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway, type BatchGateway } from '../gateway.ts';
import { openDatabase } from './processes.ts';
import { Machines } from './machines.ts';

/** A fleet test's environment. Tests share the server; everything else is separate. */
export interface FleetPlace {
  server: PostgresServer;
  /** The port of the server, or of a pool in front of the server. */
  port: number;
  /** The name of a database that contains the tables. */
  name: string;
  gateway: BatchGateway;
  /** Machines whose state is the database `name`. */
  machines: Machines;
  /** Returns the database's address with the given parameters, such as `lease=2s`. */
  url(parameters?: string, port?: number): string;
  /** Runs a statement on the server and returns the output. */
  query(statement: string): Promise<string>;
}

/** How a fleet test connects to the server. */
export interface FleetOptions {
  /** Whether to connect through PgBouncer in transaction mode. The tests are skipped if PgBouncer is not installed. */
  isPooled?: boolean;
  /** Parameters of the address that the machines use. */
  parameters?: string;
}

/** Defines tests on a separate PostgreSQL server. The tests are skipped if PostgreSQL is not installed. */
export function describeFleet(
  name: string,
  { isPooled = false, parameters = '' }: FleetOptions,
  tests: (place: FleetPlace) => void,
): void {
  describe.skipIf(isPooled ? !hasPgBouncer : !hasPostgres)(name, () => {
    const place = {} as FleetPlace;
    let pool: PgBouncer | undefined;
    beforeAll(async () => {
      place.server = await PostgresServer.open();
      pool = isPooled ? await PgBouncer.open(place.server.port) : undefined;
      place.port = pool?.port ?? place.server.port;
    });
    afterAll(async () => {
      await pool?.close();
      await place.server.close();
    });
    beforeEach(async () => {
      const database = await place.server.database();
      const url: FleetPlace['url'] = (more = '', port = place.port) =>
        `${place.server.url(database, port)}?${more}`;
      place.name = database;
      place.url = url;
      place.query = (statement) => place.server.query(statement, database);
      const gateway = await startBatchGateway();
      onEnd(() => gateway.close());
      place.gateway = gateway;
      place.machines = new Machines(gateway.url, url(parameters));
      await openDatabase(url(), true);
    });
    tests(place);
  });
}

/** The two ways to connect to a server. */
export const bothWays = [
  { way: 'directly', isPooled: false },
  { way: 'through a transaction pool', isPooled: true },
];
