import { execFileSync, spawn } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import { bearer } from '../../src/exchange.ts';
import { openSession, type Session, transferDeadline } from '../../src/flows/session.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import {
  configuredGateway,
  ledgerFolder,
  sandboxGateway,
  sharedLedger,
  withSettings,
} from '../../src/flows/settings.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { minSecretLength } from '../../src/redact.ts';
import { fakeClock } from '../jobs/harness.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

it('a session opens its ledger again if the first attempt failed', async () => {
  const state = join(freshFolder(), 'state');
  writeFileSync(state, '');
  const session = sessionIn(state);
  await expect(session.ledger()).rejects.toMatchObject({ code: 'local_io' });
  rmSync(state);
  const ledger = await session.ledger();
  expect(await session.ledger()).toBe(ledger);
  expect(existsSync(join(state, 'jobs'))).toBe(true);
});

it('a session reads its settings again if a setting of the gateway was missing, and then keeps them', async () => {
  let env: NodeJS.ProcessEnv = { MGW_STATE_DIR: freshFolder() };
  const session = openSession({
    clock: fakeClock(),
    settings: () => Promise.resolve(resolveSettings({ flags: {}, env, file: { profiles: {} } })),
    note: () => undefined,
    signals: () => ({ soft: new AbortController().signal, hard: new AbortController().signal }),
  });
  await expect(session.client()).rejects.toMatchObject({ code: 'config' });
  expect((await session.settings()).baseUrl).toBeUndefined();
  env = { ...env, MGW_BASE_URL: 'http://127.0.0.1:1', MGW_API_KEY: 'k' };
  expect(await session.gateway()).toMatchObject({ name: 'http://127.0.0.1:1', key: 'k' });
  expect((await session.jobDeps()).key).toBe('k');
  const settings = await session.settings();
  env = { ...env, MGW_API_KEY: 'another' };
  expect(await session.settings()).toBe(settings);
  await session.close();
});

it('the sandbox is recorded under its own name, regardless of the configured gateway', () => {
  const env = { MGW_BASE_URL: 'https://gateway.example/', MGW_API_KEY: 'k' };
  const gatewayOf = (flags: object): string | undefined =>
    configuredGateway(resolveSettings({ flags, env, file: { profiles: {} } }));
  expect([gatewayOf({}), gatewayOf({ sandbox: true })]).toEqual(['https://gateway.example', 'sandbox']);
});

it('the sandbox is polled every 200 ms unless the user sets an interval', () => {
  const pollIntervalOf = (flags: object): number | undefined =>
    sandboxGateway(resolveSettings({ flags: { sandbox: true, ...flags }, env: {}, file: { profiles: {} } }), {
      url: 'http://127.0.0.1:1',
      key: 'k',
    }).pollIntervalMs;
  expect([pollIntervalOf({}), pollIntervalOf({ pollInterval: '3s' })]).toEqual([200, 3000]);
});

it('the sandbox has its own ledger folder', () => {
  const folderFor = (flags: object): string =>
    ledgerFolder(resolveSettings({ flags, env: { MGW_STATE_DIR: '/state' }, file: { profiles: {} } }));
  expect([folderFor({}), folderFor({ sandbox: true })]).toEqual(['/state', '/state/sandbox/ledger']);
});

it('a protocol whose authentication can be set uses the setting', () => {
  const profiles = { default: { c: { auth_header: 'X-Key' } } };
  const settings = resolveSettings({ flags: {}, env: {}, file: { profiles } });
  expect(withSettings(c, settings).auth).toEqual({ header: 'X-Key', scheme: '' });
});

it('the sandbox has its own schema in a shared database', () => {
  const schemaFor = (flags: object): string | undefined => {
    const env = { MGW_STATE: 'postgres:///d?schema=films' };
    return sharedLedger(resolveSettings({ flags, env, file: { profiles: {} } }))?.schema;
  };
  expect([schemaFor({}), schemaFor({ sandbox: true })]).toEqual(['films', 'films_sandbox']);
});

it.each([
  ["the command's deadline if it is earlier", { remainingMs: () => 5 }, 5],
  ["its own timeout if the command's deadline is later", { remainingMs: () => Infinity }, 1_200_000],
  ['its own timeout if the command has no deadline', undefined, 1_200_000],
])('the deadline of a transfer is %s', async (_, deadline, expected) => {
  const client = () => Promise.resolve({ deadline } as GatewayClient);
  const session = sessionIn(freshFolder(), {}, { client }, { timeout: '20m' });
  expect((await transferDeadline(session)).remainingMs()).toBe(expected);
});

it("the command's deadline applies to the client once the deadline has started", async () => {
  const session = sessionIn(freshFolder(), {}, {}, { timeout: '20m' });
  const { deadline } = await session.client();
  expect(deadline?.remainingMs()).toBe(Infinity);
  expect((await session.deadline()).remainingMs()).toBe(1_200_000);
  expect(deadline?.remainingMs()).toBe(1_200_000);
});

it('a session uses the client that wrapClient returns', async () => {
  const wrapped = {} as GatewayClient;
  const session = openSession({
    clock: fakeClock(),
    settings: () => sessionIn(freshFolder()).settings(),
    note: () => undefined,
    signals: () => ({ soft: new AbortController().signal, hard: new AbortController().signal }),
    wrapClient: () => wrapped,
  });
  expect(await session.client()).toBe(wrapped);
});

it('a session with a shared ledger does not use its folder if the database is unreachable', async () => {
  const session = sessionIn(freshFolder(), { MGW_STATE: 'postgres://127.0.0.1:1/mgw' });
  await expect(session.ledger()).rejects.toMatchObject({ code: 'unreachable' });
  expect(session.notes).toEqual([]);
});

it('a session can upload files if it has a store, or in the sandbox', async () => {
  const [session, rehearsal] = [sessionIn(freshFolder()), sessionIn(freshFolder(), { MGW_SANDBOX: '1' })];
  expect([await session.hasStore(), await rehearsal.hasStore()]).toEqual([false, true]);
  expect(await session.store()).toBeUndefined();
  await session.close();
});

it('a session closes its ledger and its client', async () => {
  const account = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret', AWS_REGION: 'eu-west-1' };
  const session = sessionIn(freshFolder(), { ...account, MGW_SANDBOX: '1' });
  const { baseUrl } = await session.gateway();
  const opened = [await session.objects(), await session.budget('standing', 'clips')];
  const closed = [...opened, await session.ledger()].map((each) => vi.spyOn(each, 'close'));
  await session.close();
  await session.closeLedger();
  for (const each of closed) expect(each).toHaveBeenCalledOnce();
  await expect(fetch(baseUrl)).rejects.toMatchObject({ cause: { code: 'ECONNREFUSED' } });
});

it('closing a session aborts its calls', async () => {
  const server = await httpServer(() => void session.close());
  const session = sessionIn(freshFolder(), { MGW_BASE_URL: server.url });
  const client = await session.client();
  const call = client.exchange(
    { method: 'GET', path: '/v1/models', headers: {} },
    { auth: bearer, timeoutMs: 60_000 },
  );
  await expect(call).rejects.toThrow('the client was closed');
});

it('an API key is hidden in text, unless the key is so short that the text may contain it by chance', async () => {
  const [key, short] = ['k'.repeat(minSecretLength), 's'.repeat(minSecretLength - 1)];
  const shownBy = async (text: string): Promise<string> => {
    const session = sessionIn(freshFolder(), { MGW_API_KEY: text });
    await session.settings();
    return session.redact(text);
  };
  expect([(await shownBy(key)).includes(key), await shownBy(short)]).toEqual([false, short]);
});

it.each([
  ['by a command that prints records', {}, (session: Session) => session.hideKey()],
  ['in the sandbox', { MGW_SANDBOX: '1' }, (session: Session) => session.gateway()],
])('an API key that is read from a pipe is hidden %s', async (_, env, open) => {
  const [pipe, key] = [join(freshFolder(), 'pipe'), 'k'.repeat(minSecretLength)];
  execFileSync('mkfifo', [pipe]);
  const session = sessionIn(freshFolder(), { ...env, MGW_API_KEY: undefined, MGW_API_KEY_FILE: pipe });
  await session.settings();
  expect(session.redact(key)).toBe(key);
  spawn('sh', ['-c', `printf %s ${key} > "$0"`, pipe]);
  await open(session);
  expect(session.redact(key)).not.toContain(key);
  await session.close();
});

it('an API key is removed from a response, unless it is so short that a handle may contain it by chance', async () => {
  const server = await httpServer(({ path }, response) => void response.end(`{"id":"${path.slice(1)}"}`));
  const shownBy = async (key: string): Promise<string> => {
    const session = sessionIn(freshFolder(), { MGW_BASE_URL: server.url, MGW_API_KEY: key });
    const request = { method: 'GET', path: `/${key}`, headers: {} } as const;
    return (await (await session.client()).exchange(request, { auth: bearer, timeoutMs: 60_000 })).text;
  };
  const [key, short] = ['k'.repeat(minSecretLength), 's'.repeat(minSecretLength - 1)];
  expect([(await shownBy(key)).includes(key), await shownBy(short)]).toEqual([false, `{"id":"${short}"}`]);
});
