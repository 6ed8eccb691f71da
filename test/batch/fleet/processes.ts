import type { FleetState } from '../../../src/batch/fleet/fleet-state.ts';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { createTables } from '../../../src/ledger/postgres/schema.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';

/** Opens separate connections to the database `url` until the test ends. Creates the tables if `isNew`. */
export async function openDatabase(url: string, isNew = false): Promise<Database> {
  const database = new Database(parseStateUrl(url));
  onEnd(() => database.close());
  if (isNew) await createTables(database);
  return database;
}

/** A process of a fleet. A test can end its lease. */
export interface TestProcess extends FleetState {
  id: string;
  /** Ends the process's lease, as if the lease had not been renewed. */
  die(): Promise<void>;
}

/** Returns a process that has acquired its lease in `database`. */
export async function processIn(database: Database): Promise<TestProcess> {
  const query: FleetState['query'] = (text, values) =>
    database.query(
      text.replace(/\{(\w+)\}/g, (_, name: string) => database.table(name)),
      values,
    );
  const [row] = await query<{ id: string }>(
    `insert into {leases} (instance, host, pid, until) values ('test', 'test', 1, clock_timestamp() + interval '1 hour') returning id::text`,
  );
  const id = row?.id ?? '';
  return {
    query,
    combine: (all) => database.combine(all),
    id,
    lease: () => Promise.resolve(id),
    flush: () => Promise.resolve(),
    die: async () => {
      await query(`update {leases} set until = clock_timestamp() where id = $1`, [id]);
    },
  };
}
