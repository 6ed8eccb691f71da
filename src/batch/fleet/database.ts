import { randomUUID } from 'node:crypto';
import type { Ledger } from '../../ledger/ledger.ts';

/** What rows and paces are kept in: the shared ledger's database, as far as they use it. */
export interface Database {
  /** Runs one statement and gives its rows; it may be done twice. @throws MgwError('unreachable') where nobody answers. */
  query<T extends Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<T[]>;
  /** A table's full name. */
  table(name: string): string;
  url: {
    /** How long a process that is not heard of counts as alive, ms. */
    leaseMs: number;
  };
}

/** The database of a ledger that machines share; undefined where the ledger is this machine's. */
export function sharedDatabase(ledger: Ledger & { database?: Database }): Database | undefined {
  return ledger.database;
}

/** Runs a statement in which `{name}` stands for a table. */
export type Ask = <T extends Record<string, unknown>>(
  text: string,
  values?: readonly unknown[],
) => Promise<T[]>;

/** Asks a database. */
export function asking(database: Database): Ask {
  return (text, values) =>
    database.query(
      text.replace(/\{(\w+)\}/g, (_, name: string) => database.table(name)),
      values,
    );
}

/** How a process holds what is the fleet's: whoever has not renewed it by its end has lost it. */
export interface Hold {
  /** Names the process; no two have one name. */
  holder: string;
  /** How long what is held stays so without being renewed, ms. */
  leaseMs: number;
}

const holder = randomUUID();

/** How this process holds what is in a database. */
export function holdIn({ url: { leaseMs } }: Database): Hold {
  return { holder, leaseMs };
}
