import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import { limitsOf, openSandbox, startSandbox } from '../../src/flows/open-sandbox.ts';
import { openObjects, openStore, reachProblem } from '../../src/flows/open-stores.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import type { SandboxOptions } from '../../src/sandbox/server.ts';
import type { StoreDeps } from '../../src/store/store.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

it.each([
  ['media.example.com', 'gateway.example.com', undefined],
  ['10.0.0.7', 'gateway.example.com', 'cannot reach'],
  ['localhost', 'gateway.example.com', 'cannot reach'],
  ['10.0.0.7', '10.0.0.8', undefined],
  ['10.0.0.7', 'localhost', undefined],
  ['localhost', '10.0.0.8', 'cannot reach'],
  ['storage.googleapis.com', 'gateway.example.com', 'mainland China'],
  ['googleapis.com', 'localhost', 'mainland China'],
  ['mygoogleapis.com', 'gateway.example.com', undefined],
])('mgw reports the problem of a store at %s with a gateway at %s: %s', (store, gateway, problem) => {
  if (problem === undefined) expect(reachProblem(store, gateway)).toBeUndefined();
  else expect(reachProblem(store, gateway)).toContain(problem);
});

it('a store that is configured both as an address and as a program is refused', async () => {
  const [deps, expiresMs] = [{} as StoreDeps, 60_000];
  expect(await openStore({ expiresMs }, {}, deps)).toBeUndefined();
  const command = ['upload'];
  await expect(openStore({ url: 's3://bucket/p', command, expiresMs }, {}, deps)).rejects.toMatchObject({
    code: 'config',
    next: ['mgw', 'config', 'unset', 'store.command'],
  });
  const program = await openStore({ command, expiresMs }, {}, deps);
  expect([program !== undefined, 'describe' in (program ?? {})]).toEqual([true, false]);
  const account = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret', AWS_REGION: 'eu-west-1' };
  const [clock, endpoint] = [{ now: () => 0 }, 'http://127.0.0.1:1'];
  const bucket = await openStore({ url: 's3://bucket/p', endpoint, expiresMs }, account, {
    ...deps,
    clock,
  } as StoreDeps);
  expect('describe' in (bucket ?? {})).toBe(true);
});

it('a store in the local network is used only with --allow-http', async () => {
  const account = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret', AWS_REGION: 'eu-west-1' };
  const open = (allowHttp: boolean): Promise<unknown> =>
    openStore({ url: 's3://bucket/p', endpoint: 'http://10.0.0.1:9000', expiresMs: 60_000 }, account, {
      allowHttp,
      clock: { now: () => 0 },
    } as StoreDeps);
  await expect(open(true)).resolves.toBeDefined();
  await expect(open(false)).rejects.toMatchObject({ code: 'config', lacks: ['--allow-http'] });
});

it("a request to the store is not repeated after the command's deadline", async () => {
  const server = await httpServer((_, response) => void response.writeHead(503).end());
  const account = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };
  const client = { deadline: { remainingMs: () => 0 } } as GatewayClient;
  const env = { ...account, AWS_ENDPOINT_URL_S3: server.url };
  const session = sessionIn(freshFolder(), env, { client: () => Promise.resolve(client) });
  const store = await openObjects(session);
  onEnd(() => store.close());
  const file = { path: 'boat.mp4', bytes: 1, sha256: '' };
  await expect(store.has('s3://bucket/boat.mp4', file)).rejects.toMatchObject({ code: 'store' });
  expect(server.requests).toHaveLength(1);
});

const settings = (flags: object, env: object = {}): ReturnType<typeof resolveSettings> =>
  resolveSettings({ flags, env: { ...env }, file: { profiles: {} } });

it('the sandbox at the address in MGW_SANDBOX is used, and no other sandbox is started', async () => {
  const opened = await openSandbox(settings({}, { MGW_SANDBOX: 'http://127.0.0.1:7' }), '/nowhere');
  expect([opened.url, opened.key === '']).toEqual(['http://127.0.0.1:7', false]);
  await opened.close();
});

it('a sandbox does not keep the process running', async () => {
  const listeners = (): number =>
    process.getActiveResourcesInfo().filter((name) => name === 'TCPServerWrap').length;
  const before = listeners();
  const opened = await openSandbox(settings({ sandbox: true }), freshFolder());
  onEnd(() => opened.close());
  expect(listeners()).toBeLessThanOrEqual(before);
});

it("flags override settings for the sandbox account's limits", () => {
  const env = { MGW_SANDBOX: '1' };
  const own = limitsOf(settings({}, env));
  expect(limitsOf(settings({}, env), { balance: 3, concurrency: 4, perMinute: 5 })).toEqual({
    ...{ balance: 3, concurrency: 4, perMinute: 5 },
  });
  expect(limitsOf(settings({}, env), { concurrency: 4 })).toEqual({ ...own, concurrency: 4 });
});

it('a sandbox that cannot start names the invalid flag or folder in its error', async () => {
  const [stateDir, { port }] = [freshFolder(), await httpServer()];
  const file = join(stateDir, 'file');
  writeFileSync(file, '');
  const starting = (more: Partial<SandboxOptions>): Promise<unknown> => startSandbox({ stateDir, ...more });
  await expect(starting({ faults: ['nonsense'] })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringMatching(/^--fault: /) as string,
  });
  await expect(starting({ keys: ['two words'] })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringMatching(/^--key: /) as string,
  });
  await expect(starting({ port })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining(`--port ${port}: `) as string,
  });
  await expect(starting({ stateDir: file })).rejects.toMatchObject({
    code: 'local_io',
    retry: 'safe',
    message: expect.stringContaining(file) as string,
  });
});
