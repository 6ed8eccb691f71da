import { MgwError } from '../../errors.ts';
import type { Ledger } from '../../ledger/ledger.ts';
import type { Database } from '../../ledger/postgres/database.ts';

/**
 * Runs a statement and returns its rows. `{name}` in the statement is replaced by the full name of the table `name`. A
 * retry may run the statement a second time.
 * @throws MgwError('unreachable') if the database does not respond.
 */
export type Query = <T extends Record<string, unknown>>(
  text: string,
  values?: readonly unknown[],
  commit?: 'soon',
) => Promise<T[]>;

/** The state that machines share to run a batch together. */
export interface FleetState {
  query: Query;
  /** Combines calls into one statement; see `Database.combine`. */
  combine: Database['combine'];
  /**
   * Returns the id of this process's lease on its rows and slots. When the lease ends, the rows and slots become free.
   * @throws MgwError('unreachable') if no lease can be acquired.
   */
  lease: () => Promise<string>;
  /** Writes events that this process stored while the database was unreachable. @throws MgwError('unreachable'). */
  flush: () => Promise<void>;
}

/** Returns the fleet's state if the ledger is shared; undefined if the ledger belongs to this machine alone. */
export function fleetStateOf(ledger: Ledger & { database?: Database }): FleetState | undefined {
  const { database } = ledger;
  if (database === undefined) return undefined;
  return {
    query: (text, values, commit) =>
      database.query(
        text.replace(/\{(\w+)\}/g, (_, name: string) => database.table(name)),
        values,
        commit,
      ),
    combine: (query) => database.combine(query),
    flush: () => ledger.flush(),
    lease: async () => {
      const { owner } = await ledger.lease();
      if (owner.lease === undefined)
        throw new MgwError('internal', 'The shared ledger did not grant a lease.');
      return owner.lease;
    },
  };
}

/** Returns an SQL condition that is true if the lease in the table's `lease` column has not ended. */
export function isLive(table: string): string {
  return `exists (select from {leases} held where held.id = ${table}.lease and held.until > clock_timestamp())`;
}
