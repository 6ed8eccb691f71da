import { join } from 'node:path';
import { afterAll, beforeAll, describe } from 'vitest';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { hasPgBouncer, PgBouncer } from '../support/pgbouncer.ts';
import { freshFolder } from '../support/servers.ts';
import { conformance, now } from './conformance.ts';
import { describePostgres } from './postgres/place.ts';

describe('the file ledger', () => {
  conformance(() => {
    const state = join(freshFolder(), 'deep', 'state');
    return Promise.resolve({ open: () => openFileLedger(state, () => now) });
  });
});

// A transaction pool permits less than a direct connection, which the other tests of this ledger use.
describePostgres(
  'the PostgreSQL ledger, behind a transaction pool if PgBouncer is installed,',
  (newPlace, serverOf) => {
    let pool: PgBouncer | undefined;
    beforeAll(async () => (pool = hasPgBouncer ? await PgBouncer.open(serverOf().port) : undefined));
    afterAll(() => pool?.close());
    conformance(async () => {
      const place = await newPlace();
      return { open: () => place.open({ port: pool?.port }) };
    });
  },
);
