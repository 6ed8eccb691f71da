import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import { configuredGateway } from '../../src/flows/settings.ts';
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

it('the sandbox has a name of its own in the records, whatever gateway is configured', () => {
  const env = { MGW_BASE_URL: 'https://gateway.example/', MGW_API_KEY: 'k' };
  const gatewayOf = (flags: object): string | undefined =>
    configuredGateway(resolveSettings({ flags, env, file: { profiles: {} } }));
  expect([gatewayOf({}), gatewayOf({ sandbox: true })]).toEqual(['https://gateway.example', 'sandbox']);
});

it('a session closes its store of objects', async () => {
  const account = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret', AWS_REGION: 'eu-west-1' };
  const session = sessionIn(freshFolder(), account);
  const closed = vi.spyOn(await session.objects(), 'close');
  await session.close();
  expect(closed).toHaveBeenCalledOnce();
});
