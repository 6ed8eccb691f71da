import { afterAll, beforeAll, describe } from 'vitest';
import type { Clock } from '../../../src/clock.ts';
import { openPostgresLedger, type PostgresLedger } from '../../../src/ledger/postgres/postgres-ledger.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { hurried } from '../../support/one-process.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { freshFolder } from '../../support/servers.ts';
import { now, type Place } from '../conformance.ts';

/** How a process opens the ledger. */
export interface OpenOptions {
  /** Parameters of the address, such as `lease=1s`. */
  parameters?: string;
  /** The port of a proxy or pool in front of the server. */
  port?: number;
  stateDir?: string;
  clock?: Clock;
}

/** A ledger in a separate database. */
export interface PostgresPlace extends Place {
  server: PostgresServer;
  /** The database's name. */
  database: string;
  open: (options?: OpenOptions) => Promise<PostgresLedger>;
}

/** A clock with a fixed time of day, a running monotonic clock for leases, and short pauses. */
const stillClock: Clock = { ...hurried(), now: () => now };

/** Defines tests on a separate PostgreSQL server. The tests are skipped if PostgreSQL is not installed. */
export function describePostgres(
  name: string,
  tests: (newPlace: () => Promise<PostgresPlace>, serverOf: () => PostgresServer) => void,
): void {
  describe.skipIf(!hasPostgres)(name, () => {
    let server: PostgresServer;
    beforeAll(async () => (server = await PostgresServer.open()));
    afterAll(() => server.close());
    tests(
      () => placeOn(server),
      () => server,
    );
  });
}

async function placeOn(server: PostgresServer): Promise<PostgresPlace> {
  const database = await server.database();
  const home = freshFolder();
  const open = async (options: OpenOptions = {}): Promise<PostgresLedger> => {
    const { parameters = '', port, stateDir = home, clock = stillClock } = options;
    const url = parseStateUrl(`${server.url(database, port)}?${parameters}`);
    const ledger = await openPostgresLedger(url, { stateDir, clock, create: true });
    onEnd(() => ledger.close());
    return ledger;
  };
  return { server, database, open };
}
