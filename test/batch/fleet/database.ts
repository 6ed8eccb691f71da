import { Database } from '../../../src/ledger/postgres/database.ts';
import { makeTables } from '../../../src/ledger/postgres/schema.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';

/** Connections of a test's own to a database; the tables are made where `isNew`. */
export async function openDatabase(url: string, isNew = false): Promise<Database> {
  const database = new Database(parseStateUrl(url));
  onEnd(() => database.close());
  if (isNew) await makeTables(database);
  return database;
}
