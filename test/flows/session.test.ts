import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

it('a session tries again to open what it could not open before', async () => {
  const state = join(freshFolder(), 'state');
  writeFileSync(state, '');
  const session = sessionIn(state);
  await expect(session.ledger()).rejects.toMatchObject({ code: 'local_io' });
  rmSync(state);
  const ledger = await session.ledger();
  expect(await session.ledger()).toBe(ledger);
  expect(existsSync(join(state, 'jobs'))).toBe(true);
});
