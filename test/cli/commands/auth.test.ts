import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { canaryKey, type User } from '../../support/cli.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { RawServer } from '../../support/raw-server.ts';
import { userHere } from '../../support/one-process.ts';
import { closedPort, httpServer, says, type HttpServer } from '../../support/servers.ts';

const configOf = (user: User): string => join(user.cwd, 'config', 'config.json');
const storedConfig = (user: User): unknown => JSON.parse(readFileSync(configOf(user), 'utf8'));

const listing = says({ data: [{ id: 'vendor-h3-mini' }, { id: 'Video-B' }] });

/** Starts a gateway that sends the given responses to `GET /v1/models`. */
async function gatewayThat(...answers: ReturnType<typeof says>[]): Promise<HttpServer> {
  const server = await httpServer();
  server.answers.push(...answers);
  return server;
}

describe('auth login', () => {
  it('stores a key that the gateway accepts, readable only by the user, and does not print the key', async () => {
    const gateway = await gatewayThat(listing);
    const user = userHere();
    const login = await user.run(['auth', 'login', '--base-url', `${gateway.url}/`], {
      stdin: `${canaryKey}\n`,
    });
    expect(login).toMatchObject({ code: 0, stdout: '' });
    expect(login.stderr).toContain(configOf(user));
    expect(login.stderr).toContain('accepted and can use 2 models');
    expect(login.stderr).not.toContain(canaryKey);
    expect(gateway.requests).toMatchObject([
      { path: '/v1/models', headers: { authorization: `Bearer ${canaryKey}` } },
    ]);
    expect(storedConfig(user)).toEqual({
      profiles: { default: { api_key: canaryKey, base_url: gateway.url } },
    });
    expect(statSync(configOf(user)).mode & 0o777).toBe(0o600);
    expect(statSync(join(user.cwd, 'config')).mode & 0o777).toBe(0o700);
  });

  it('accepts a gateway address without a scheme, and adds the scheme to the stored address', async () => {
    const gateway = await gatewayThat(listing);
    const user = userHere();
    const address = ['--base-url', new URL(gateway.url).host];
    expect((await user.run(['auth', 'login', ...address], { stdin: canaryKey })).code).toBe(0);
    expect(storedConfig(user)).toMatchObject({ profiles: { default: { base_url: gateway.url } } });
  });

  it.each([
    [
      'a key that is refused',
      says({ error: { message: `No user of ${canaryKey}` } }, 401),
      3,
      'auth',
      'refused the key',
    ],
    [
      'an address that is not a gateway',
      says('<html>hello</html>'),
      6,
      'bad_reply',
      'does not respond like a gateway',
    ],
  ] as const)('stores nothing after %s, except with --no-verify', async (_, answer, code, name, words) => {
    const gateway = await gatewayThat(answer);
    const user = userHere();
    const args = ['auth', 'login', '--base-url', gateway.url, '--json'];
    const login = await user.run(args, { stdin: canaryKey });
    expect(login).toMatchObject({ code, json: { error: { code: name, charged: 'no' } } });
    expect(login.json.error.message).toContain(`${gateway.url} ${words}: `);
    expect(login.stdout).not.toContain(canaryKey);
    expect(existsSync(configOf(user))).toBe(false);
    expect((await user.run([...args, '--no-verify'], { stdin: canaryKey })).code).toBe(0);
    expect(storedConfig(user)).toEqual({
      profiles: { default: { api_key: canaryKey, base_url: gateway.url } },
    });
    expect(gateway.requests).toHaveLength(1);
  });

  it('checks the entered key, not the key in the environment', async () => {
    const gateway = await gatewayThat(listing);
    const user = userHere(gateway.url);
    const login = await user.run(['auth', 'login'], { stdin: 'key-1' });
    expect([login.code, login.stderr]).toEqual([
      0,
      expect.stringContaining('MGW_API_KEY is set and takes precedence.'),
    ]);
    expect(gateway.requests).toMatchObject([{ headers: { authorization: 'Bearer key-1' } }]);
    expect(storedConfig(user)).toEqual({
      profiles: { default: { api_key: 'key-1', base_url: gateway.url } },
    });
  });

  it('stores the address from MGW_BASE_URL, to which the key belongs, not the address of another gateway', async () => {
    const gateway = await gatewayThat(listing);
    const user = userHere();
    await user.run(['auth', 'login', '--no-verify', '--base-url', 'https://first.example'], {
      stdin: 'key-1',
    });
    const env = { MGW_BASE_URL: gateway.url };
    expect((await user.run(['auth', 'login'], { stdin: 'key-2', env })).code).toBe(0);
    expect(storedConfig(user)).toEqual({
      profiles: { default: { api_key: 'key-2', base_url: gateway.url } },
    });
    const bad = await user.run(['auth', 'login'], {
      stdin: 'key-3',
      env: { MGW_BASE_URL: 'http://10.0.0.1' },
    });
    expect([bad.code, bad.stderr]).toEqual([
      2,
      expect.stringContaining('MGW_BASE_URL http://10.0.0.1: must be'),
    ]);
    expect(storedConfig(user)).toMatchObject({ profiles: { default: { api_key: 'key-2' } } });
  });

  it('requires the gateway address as an argument if mgw cannot prompt', async () => {
    const login = await userHere().run(['auth', 'login', '--json'], { stdin: 'key-1' });
    expect(login).toMatchObject({
      code: 2,
      json: { error: { next: expect.arrayContaining(['--base-url']) as unknown } },
    });
  });

  it('creates a profile, and later changes only the key in that profile', async () => {
    const user = userHere();
    const login = ['auth', 'login', '--no-verify', '--profile', 'work'];
    await user.run([...login, '--base-url', 'http://10.0.0.1', '--allow-http'], { stdin: 'key-1' });
    const again = await user.run(['--json', ...login], { stdin: 'key-2\r\n' });
    expect(again.json).toMatchObject({ ok: true, profile: 'work', config_file: configOf(user) });
    const work = { api_key: 'key-2', base_url: 'http://10.0.0.1', allow_http: true };
    expect(storedConfig(user)).toEqual({ profiles: { work } });
  });

  it.each([
    ['', 'empty'],
    ['Bearer sesame-1234', 'Bearer'],
    ['sesame 1234', 'white space'],
  ])('refuses the key %j without printing it, and stores nothing', async (key, why) => {
    const user = userHere();
    const login = ['auth', 'login', '--base-url', 'https://gateway.example'];
    const { code, stdout, stderr } = await user.run(login, { stdin: key });
    expect(code).toBe(2);
    expect(stderr).toContain(why);
    expect(stderr).toContain('next: mgw --base-url https://gateway.example auth login');
    expect(stdout + stderr).not.toMatch(/s[eé]same|1234/);
    expect(existsSync(configOf(user))).toBe(false);
  });

  it('refuses an invalid base URL before it prompts for the key', async () => {
    const { code, stderr } = await userHere().run(['auth', 'login', '--base-url', 'https://h/v1'], {
      stdin: 'key',
    });
    expect(code).toBe(2);
    expect(stderr).toContain('without /v1');
  });

  it('does not accept a key on the command line', async () => {
    for (const args of [
      ['auth', 'login', 'sk-1'],
      ['auth', 'login', '--key', 'sk-1'],
      ['config', 'set', 'api_key', 'sk-1'],
    ])
      expect((await userHere().run(args, { stdin: '' })).code).toBe(2);
  });
});

describe('auth status', () => {
  it("prints each value's source and whether the gateway accepts the key, but no secrets", async () => {
    const gateway = await gatewayThat(listing, listing);
    const user = userHere(gateway.url);
    const { code, stdout, stderr } = await user.run(['auth', 'status']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/base_url +http:\/\/127\.0\.0\.1:\d+ +environment MGW_BASE_URL/);
    expect(stdout).toMatch(/api_key +\(set\) +environment MGW_API_KEY/);
    expect(stdout).toMatch(/accepted +yes, with 2 models/);
    expect(stdout + stderr).not.toContain(canaryKey.slice(3, 12));
    expect(stdout + stderr).not.toContain(canaryKey.slice(-4));
    const { json } = await user.run(['auth', 'status', '--json']);
    const auth = { profile: 'default', key_source: 'environment MGW_API_KEY', accepted: true, models: 2 };
    expect(json['auth']).toMatchObject(auth);
  });

  it('reports a refused key or a gateway that does not respond', async () => {
    const invalid = says({ error: { message: 'Invalid token' } }, 401);
    const gateway = await gatewayThat(invalid, invalid);
    const user = userHere(gateway.url);
    await user.run(['auth', 'login', '--no-verify'], { stdin: canaryKey });
    const refused = await user.run(['auth', 'status', '--json']);
    expect(refused).toMatchObject({ code: 3, json: { auth: { accepted: false }, error: { code: 'auth' } } });
    expect(refused.json.error.next).toBeUndefined();
    const stored = await user.run(['auth', 'status', '--json'], { env: { MGW_API_KEY: undefined } });
    expect(stored.json.error.next).toEqual(['mgw', 'auth', 'login']);
    const silent = await userHere(`http://127.0.0.1:${await closedPort()}`).run(['auth', 'status']);
    expect([silent.code, silent.stdout]).toEqual([6, expect.stringMatching(/accepted +unknown/)]);
  });

  it('exits with 2 if the key is missing or invalid', async () => {
    expect((await userHere().run(['auth', 'status'])).code).toBe(2);
    const bad = await userHere().run(['auth', 'status', '--json'], { env: { MGW_API_KEY: 'Bearer sesame' } });
    expect(bad).toMatchObject({ code: 2 });
    expect(bad.json.error.code).toBe('config');
    expect(bad.stdout).not.toContain('sesame');
  });

  it('does not need a key in the sandbox', async () => {
    const { code, stdout } = await userHere().run(['auth', 'status', '--sandbox']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'The sandbox is in use. No key is needed.\n' });
  });

  it('refuses a config file that others can read, and explains how to fix it', async () => {
    const user = userHere();
    mkdirSync(join(user.cwd, 'config'));
    writeFileSync(configOf(user), JSON.stringify({ profiles: { default: { api_key: canaryKey } } }));
    chmodSync(configOf(user), 0o644);
    const { code, stderr } = await user.run(['auth', 'status']);
    expect(code).toBe(2);
    expect(stderr).toContain(`chmod 600 ${configOf(user)}`);
    expect(stderr).not.toContain(canaryKey);
  });
});

describe('auth logout', () => {
  it('removes only the key from its profile', async () => {
    const user = userHere();
    await user.run(['auth', 'login', '--no-verify', '--base-url', 'https://gateway.example'], {
      stdin: canaryKey,
    });
    await user.run(['auth', 'login', '--no-verify', '--profile', 'work'], { stdin: 'work-key' });
    const logout = await user.run(['auth', 'logout', '--json']);
    expect(logout.json).toMatchObject({ ok: true, profile: 'default', removed: true });
    expect(storedConfig(user)).toEqual({
      profiles: { default: { base_url: 'https://gateway.example' }, work: { api_key: 'work-key' } },
    });
    expect((await user.run(['auth', 'logout', '--json'])).json).toMatchObject({ ok: true, removed: false });
  });

  it('reports that an environment variable still contains a key', async () => {
    const { stderr } = await userHere('https://gateway.example').run(['auth', 'logout']);
    expect(stderr).toContain('MGW_API_KEY is still set');
  });
});

it.each([
  ['auth login', ['auth', 'login']],
  ['auth status', ['auth', 'status']],
  ['doctor', ['doctor']],
])(
  'mgw %s ends when the timeout in the settings has passed, even if the gateway never responds',
  async (_, args) => {
    const server = await RawServer.start(() => undefined);
    onEnd(() => server.stop());
    const run = await userHere(server.url(''), { MGW_TIMEOUT: '500ms' }).run([...args, '--json'], {
      stdin: canaryKey,
    });
    expect(run).toMatchObject({ code: 6, json: { error: { code: 'unreachable' } } });
    expect(run.stdout).toContain('the deadline passed');
  },
);

it('after the key changes, mgw does not attribute a recorded refusal to the new key', async () => {
  const server = await httpServer();
  server.answers.push(says({ error: { message: 'Invalid token' } }, 401));
  const user = userHere(server.url);
  const refused = await user.run(['video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini']);
  expect([refused.code, refused.stderr]).toEqual([3, expect.stringContaining('with the key from')]);
  const later = await user.run(['jobs', 'wait', '@last'], { env: { MGW_API_KEY: 'sk-another' } });
  expect([later.code, later.stderr]).toEqual([3, expect.not.stringContaining('with the key from')]);
});
