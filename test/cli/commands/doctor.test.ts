import { chmodSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type Check, checkNode, checkStateFolder } from '../../../src/cli/doctor/local.ts';
import { checkClock } from '../../../src/cli/doctor/network.ts';
import { version } from '../../../src/installation.ts';
import { canaryKey, type CliResult, type User } from '../../support/cli.ts';
import { freshFolder } from '../../support/fresh-folder.ts';
import { userHere } from '../../support/one-process.ts';

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await new Promise((resolve) => server.close(resolve));
});

/** Starts a gateway that responds to every request with the given status and body. */
async function gateway(status: number, body: unknown, headers: Record<string, string> = {}): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status, { 'content-type': 'application/json', connection: 'close', ...headers });
    response.end(JSON.stringify(body));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function examine(
  user: User,
  args: string[] = [],
): Promise<{ result: CliResult; checks: Record<string, Check> }> {
  const result = await user.run(['doctor', '--json', ...args]);
  expect(result.stdout + result.stderr).not.toContain(canaryKey);
  const checks = result.json['checks'] as Check[];
  return { result, checks: Object.fromEntries(checks.map((check) => [check.name, check])) };
}

describe('doctor', () => {
  it('passes with a working gateway, and leaves no files behind', async () => {
    const user = userHere(await gateway(200, { data: [{ id: 'm' }] }));
    const { result, checks } = await examine(user);
    expect(result.code).toBe(0);
    expect(Object.values(checks).map(({ status }) => status)).toEqual(Array(8).fill('ok'));
    expect(Object.keys(checks)).toEqual([
      'node',
      'config',
      'state',
      'gateway',
      'proxy',
      'connection',
      'key',
      'clock',
    ]);
    expect(checks['key']?.detail).toBe('accepted; 1 model');
    expect(readdirSync(join(user.cwd, 'state'))).toEqual([]);
  });

  it('exits with 3 if the key is refused, and does not print the key', async () => {
    const body = { error: { message: `Invalid token ${canaryKey}`, code: 'invalid_api_key' } };
    const url = await gateway(401, body);
    const user = userHere(url);
    const { result, checks } = await examine(user, ['--base-url', url]);
    expect(result.code).toBe(3);
    expect(result.json.error.code).toBe('auth');
    expect(checks['key']).toMatchObject({ status: 'fail', detail: 'Invalid token [redacted]' });
    expect(checks['key']?.hint).toBe('Correct the key in MGW_API_KEY.');
    delete user.env['MGW_API_KEY'];
    await user.run(['auth', 'login', '--no-verify'], { stdin: canaryKey });
    const stored = await examine(user, ['--base-url', url]);
    expect(stored.checks['key']?.hint).toContain(`mgw --base-url ${url} auth login`);
  });

  it('exits with 4 if the base URL is probably wrong, and suggests the command that sets it', async () => {
    const { result } = await examine(userHere(await gateway(404, { error: { message: 'Not found' } })));
    expect(result.code).toBe(4);
    expect(result.json.error).toMatchObject({ code: 'not_found', next: ['mgw', 'auth', 'login'] });
  });

  it('exits with 6 if no server listens at the gateway address', async () => {
    const free = createTcpServer();
    await new Promise<void>((resolve) => free.listen(0, '127.0.0.1', resolve));
    const { port } = free.address() as AddressInfo;
    await new Promise((resolve) => free.close(resolve));
    const { result, checks } = await examine(userHere(`http://127.0.0.1:${port}`));
    expect(result.code).toBe(6);
    expect(checks['connection']?.status).toBe('fail');
    expect(checks['key']?.status).toBe('skip');
  });

  it('exits with 2 if nothing is configured, and suggests the commands that set the gateway and the key', async () => {
    const { result, checks } = await examine(userHere());
    expect(result.code).toBe(2);
    expect(checks['gateway']).toMatchObject({ status: 'fail' });
    expect(checks['gateway']?.detail).toMatch(/mgw auth login.*--sandbox/);
    expect(checks['state']?.status).toBe('ok');
  });

  it('exits with 2 if the key is missing or the config file is invalid', async () => {
    const url = await gateway(200, { data: [] });
    const keyless = await examine(userHere(undefined, { MGW_BASE_URL: url }));
    expect(keyless.result.code).toBe(2);
    expect(keyless.checks['key']?.status).toBe('fail');
    const user = userHere(url);
    mkdirSync(join(user.cwd, 'config'));
    writeFileSync(join(user.cwd, 'config', 'config.json'), 'x', { mode: 0o600 });
    const broken = await examine(user);
    expect(broken.result.code).toBe(2);
    expect(broken.checks['config']?.detail).toContain('not JSON');
    expect(broken.checks['config']?.hint).toContain('Correct the file');
    // These errors are not about the file's content, and say what to do.
    chmodSync(join(user.cwd, 'config', 'config.json'), 0o644);
    writeFileSync(join(user.cwd, 'config', 'config.json'), '{"profiles":{"default":{"api_key":"k"}}}');
    for (const each of [user, userHere(url, { MGW_CONFIG_DIR: 'relative' })])
      expect((await examine(each)).checks['config']).toMatchObject({
        status: 'fail',
        hint: 'mgw does nothing until this is fixed.',
      });
  });

  it('exits with 10 immediately if the state folder cannot be written', async () => {
    const user = userHere(await gateway(200, { data: [{ id: 'm' }] }), {
      MGW_STATE_DIR: '/proc/nowhere/state',
    });
    const { result, checks } = await examine(user);
    expect(result.code).toBe(10);
    expect(checks['state']).toMatchObject({ status: 'fail', code: 'local_io' });
    expect(checks['key']?.status).toBe('ok');
  });

  it.each<[string, (place: string) => void]>([
    ['a link to itself', (place) => symlinkSync('index.log', place)],
    ['a link to another file', (place) => symlinkSync('/dev/null', place)],
    ['a folder', (place) => mkdirSync(place)],
  ])('reports %s in place of a file in the state folder', async (_, replace) => {
    const state = freshFolder();
    expect((await checkStateFolder(state)).status).toBe('ok');
    replace(join(state, 'index.log'));
    const { status, detail } = await checkStateFolder(state);
    expect(status).toBe('fail');
    expect(detail).toMatch(/index\.log cannot be written \((ELOOP|EISDIR)\)$/);
  });

  it('warns about a wrong clock and a key without models, and exits with 0', async () => {
    const url = await gateway(200, { data: [] }, { date: 'Thu, 01 Jan 2026 00:00:00 GMT' });
    const { result, checks } = await examine(userHere(url));
    expect(result.code).toBe(0);
    expect(checks['clock']?.status).toBe('warn');
    expect(checks['key']?.status).toBe('warn');
  });

  it('suggests the command that sets a missing gateway', async () => {
    const { stdout } = await userHere().run(['doctor']);
    expect(stdout).toMatch(/gateway +fail/);
    expect(stdout).toContain('→ To set the gateway: mgw auth login --base-url https://…');
  });
});

describe('doctor --update', () => {
  /** Starts a release server. `url` is configured as `update_url`; `requests` lists the received requests. */
  async function releases(
    body: string,
    status = 200,
  ): Promise<{ user: User; url: string; requests: IncomingMessage[] }> {
    const requests: IncomingMessage[] = [];
    const server = createServer((request, response) => {
      requests.push(request);
      const location = { 302: '/latest.json', 307: '/mgw.json' }[status];
      response
        .writeHead(request.url === '/latest.json' ? 200 : status, location ? { location } : {})
        .end(body);
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mgw.json`;
    const user = userHere(await gateway(200, { data: [{ id: 'm' }] }));
    expect((await user.run(['config', 'set', 'update_url', url])).code).toBe(0);
    return { user, url, requests };
  }

  it.each([
    [
      'a newer version in a GitHub release',
      '{"tag_name":"v99.0.0-rc.1","body":7}',
      'warn',
      /^99\.0\.0-rc\.1 is available/,
    ],
    [
      'this version',
      JSON.stringify({ version: `${version}+build` }),
      'ok',
      /is the newest version, according to http/,
    ],
    [
      'a pre-release of this version',
      JSON.stringify({ version: `${version}-rc.1` }),
      'ok',
      /is newer than .*-rc\.1/,
    ],
    ['an older version', '{"version":"0.0.9"}', 'ok', /is newer than 0\.0\.9/],
  ])('reports %s, and sends no key', async (_, body, status, detail) => {
    const { user, url, requests } = await releases(body);
    const { result, checks } = await examine(user, ['--update']);
    expect(result.code).toBe(0);
    expect(checks['update']).toMatchObject({ status, detail: expect.stringMatching(detail) as string });
    expect(checks['update']?.detail).toContain(url);
    expect(requests).toHaveLength(1);
    expect(JSON.stringify(requests[0]?.rawHeaders)).not.toContain(canaryKey);
  });

  it.each([
    ['JSON without a version', '{"version":"latest"}', 200, 'returned no version'],
    [
      'a response longer than 1 MiB',
      `{"version":"99.0.0"}${' '.repeat(1024 * 1024)}`,
      200,
      'longer than 1 MiB',
    ],
    ['an error response', '{"version":"99.0.0"}', 404, 'responded with HTTP 404'],
  ])('exits with 6 after %s', async (_, body, status, detail) => {
    const { user } = await releases(body, status);
    const { result, checks } = await examine(user, ['--update']);
    expect(result.code).toBe(6);
    expect(checks['update']).toMatchObject({
      status: 'fail',
      detail: expect.stringContaining(detail) as string,
    });
  });

  it('follows a redirect, but at most five', async () => {
    const { user, requests } = await releases('{"version":"99.0.0"}', 302);
    expect((await examine(user, ['--update'])).checks['update']).toMatchObject({
      status: 'warn',
      detail: expect.stringMatching(/^99\.0\.0 is available; you have /) as string,
    });
    expect(requests.map(({ url }) => url)).toEqual(['/mgw.json', '/latest.json']);
    const endless = await releases('', 307);
    const { result, checks } = await examine(endless.user, ['--update']);
    expect(result.code).toBe(6);
    expect(checks['update']?.detail).toContain('it redirects more than five times');
    expect(endless.requests).toHaveLength(6);
  });

  it('exits with 2 if update_url is not set, and suggests the command that sets it', async () => {
    const { result, checks } = await examine(userHere(await gateway(200, { data: [{ id: 'm' }] })), [
      '--update',
    ]);
    expect(result.code).toBe(2);
    expect(checks['update']).toMatchObject({
      status: 'fail',
      hint: expect.stringContaining('mgw config set update_url URL') as string,
    });
  });

  it('is the only command that contacts update_url', async () => {
    const { user, requests } = await releases('{"version":"99.0.0"}');
    for (const args of [['doctor'], ['models'], ['--version'], ['jobs', 'ls'], ['--sandbox', 'doctor']])
      expect((await user.run(args)).code).toBe(0);
    expect(requests).toEqual([]);
  });
});

describe('checkNode', () => {
  it('accepts Node 20.18 and newer versions', () => {
    const statusOf = (version: string): string => checkNode(version).status;
    expect(['20.18.0', '20.20.2', '22.0.0', '26.1.0'].map(statusOf)).toEqual(['ok', 'ok', 'ok', 'ok']);
    expect(['20.17.9', '18.20.0', '8.0.0'].map(statusOf)).toEqual(['fail', 'fail', 'fail']);
  });
});

describe('checkClock', () => {
  const now = Date.parse('2026-06-01T12:00:00Z');
  const at = (iso: string): Check => checkClock({ headers: { date: new Date(iso).toUTCString() } }, now);

  it('accepts a difference of five minutes in either direction', () => {
    expect(at('2026-06-01T12:00:01Z').detail).toBe('agrees with the gateway');
    expect(at('2026-06-01T11:55:00Z')).toMatchObject({ status: 'ok', detail: 'differs by 300 s' });
    expect(at('2026-06-01T11:54:00Z')).toMatchObject({
      status: 'warn',
      detail: '360 s ahead of the gateway',
    });
    expect(at('2026-06-01T12:06:00Z')).toMatchObject({ status: 'warn', detail: '360 s behind the gateway' });
  });

  it('reports nothing if the response has no Date header', () => {
    expect(checkClock({ headers: {} }, now).status).toBe('skip');
    expect(checkClock({ headers: { date: 'soon' } }, now).status).toBe('skip');
  });
});
