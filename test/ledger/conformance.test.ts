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

describePostgres('the PostgreSQL ledger', (newPlace, serverOf) => {
  conformance(newPlace);

  describe.skipIf(!hasPgBouncer)('behind a transaction pool', () => {
    let pool: PgBouncer;
    beforeAll(async () => (pool = await PgBouncer.open(serverOf().port)));
    afterAll(() => pool.close());
    conformance(async () => {
      const place = await newPlace();
      return { open: () => place.open({ port: pool.port }) };
    });
  });
});
