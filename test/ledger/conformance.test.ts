import { join } from 'node:path';
import { describe } from 'vitest';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { freshFolder } from '../support/servers.ts';
import { conformance, now } from './conformance.ts';
import { describePostgres } from './postgres/place.ts';

describe('the ledger of plain files', () => {
  conformance(() => {
    const state = join(freshFolder(), 'deep', 'state');
    return Promise.resolve({ open: () => openFileLedger(state, () => now) });
  });
});

describePostgres('the ledger on PostgreSQL', (newPlace) => conformance(newPlace));
