import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { canaryKey, type User } from '../../support/cli.ts';
import { userHere } from '../../support/one-process.ts';
import { httpServer, says } from '../../support/servers.ts';

const configOf = (user: User): string => join(user.cwd, 'config', 'config.json');
const kept = (user: User): unknown => JSON.parse(readFileSync(configOf(user), 'utf8'));

describe('auth login', () => {
  it('keeps the key and the gateway, for the user alone, and prints neither key nor data', async () => {
    const user = userHere();
    const login = await user.run(['auth', 'login', '--base-url', 'https://Gateway.example/'], {
      stdin: `${canaryKey}\n`,
    });
    expect(login).toMatchObject({ code: 0, stdout: '' });
    expect(login.stderr).toContain(configOf(user));
    expect(login.stderr).not.toContain(canaryKey);
    expect(kept(user)).toEqual({
      profiles: { default: { api_key: canaryKey, base_url: 'https://gateway.example' } },
    });
    expect(statSync(configOf(user)).mode & 0o777).toBe(0o600);
    expect(statSync(join(user.cwd, 'config')).mode & 0o777).toBe(0o700);
  });

  it('makes a profile, and changes nothing else in it later', async () => {
    const user = userHere();
    await user.run(['auth', 'login', '--profile', 'work', '--base-url', 'http://10.0.0.1', '--allow-http'], {
      stdin: 'key-1',
    });
    const again = await user.run(['--json', 'auth', 'login', '--profile', 'work'], { stdin: 'key-2\r\n' });
    expect(again.json).toMatchObject({ ok: true, profile: 'work', config_file: configOf(user) });
    const work = { api_key: 'key-2', base_url: 'http://10.0.0.1', allow_http: true };
    expect(kept(user)).toEqual({ profiles: { work } });
  });

  it.each([
    ['', 'empty'],
    ['Bearer sesame-1234', 'Bearer'],
    ['"sesame-1234"', 'quotes'],
    ['sesame\n1234\n', 'line break'],
    ['sesame 1234', 'white space'],
    ['sésame-1234', 'not ASCII'],
  ])('refuses the key %j without echoing it, and keeps nothing', async (key, why) => {
    const user = userHere();
    const { code, stdout, stderr } = await user.run(['auth', 'login'], { stdin: key });
    expect(code).toBe(2);
    expect(stderr).toContain(why);
    expect(stdout + stderr).not.toMatch(/s[eé]same|1234/);
    expect(existsSync(configOf(user))).toBe(false);
  });

  it('refuses a base URL that cannot be one before it asks for the key', async () => {
    const { code, stderr } = await userHere().run(['auth', 'login', '--base-url', 'https://h/v1'], {
      stdin: 'key',
    });
    expect(code).toBe(2);
    expect(stderr).toContain('leave /v1 out');
  });

  it('takes no key from the command line', async () => {
    for (const args of [
      ['auth', 'login', 'sk-1'],
      ['auth', 'login', '--key', 'sk-1'],
      ['config', 'set', 'api_key', 'sk-1'],
    ])
      expect((await userHere().run(args, { stdin: '' })).code).toBe(2);
  });
});

describe('auth status', () => {
  it('says where everything comes from, and shows nothing of the key', async () => {
    const user = userHere('https://gateway.example');
    const { code, stdout, stderr } = await user.run(['auth', 'status']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/base_url +https:\/\/gateway\.example +environment MGW_BASE_URL/);
    expect(stdout).toMatch(/api_key +\(set\) +environment MGW_API_KEY/);
    expect(stdout + stderr).not.toContain(canaryKey.slice(3, 12));
    expect(stdout + stderr).not.toContain(canaryKey.slice(-4));
    const { json } = await user.run(['auth', 'status', '--json']);
    expect(json['auth']).toMatchObject({ profile: 'default', key_source: 'environment MGW_API_KEY' });
  });

  it('exits 2 where there is no key or a bad one', async () => {
    expect((await userHere().run(['auth', 'status'])).code).toBe(2);
    const bad = await userHere().run(['auth', 'status', '--json'], { env: { MGW_API_KEY: 'Bearer sesame' } });
    expect(bad).toMatchObject({ code: 2 });
    expect(bad.json.error.code).toBe('config');
    expect(bad.stdout).not.toContain('sesame');
  });

  it('needs no key in the sandbox', async () => {
    const { code, stdout } = await userHere().run(['auth', 'status', '--sandbox']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'The sandbox is in use: it needs no key.\n' });
  });

  it('refuses a config file that others may read, and says what to do', async () => {
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
  it('takes the key out of its profile and leaves the rest', async () => {
    const user = userHere();
    await user.run(['auth', 'login', '--base-url', 'https://gateway.example'], { stdin: canaryKey });
    await user.run(['auth', 'login', '--profile', 'work'], { stdin: 'work-key' });
    const logout = await user.run(['auth', 'logout', '--json']);
    expect(logout.json).toMatchObject({ ok: true, profile: 'default', removed: true });
    expect(kept(user)).toEqual({
      profiles: { default: { base_url: 'https://gateway.example' }, work: { api_key: 'work-key' } },
    });
    expect((await user.run(['auth', 'logout', '--json'])).json).toMatchObject({ ok: true, removed: false });
  });

  it('says that a variable still holds a key', async () => {
    const { stderr } = await userHere('https://gateway.example').run(['auth', 'logout']);
    expect(stderr).toContain('MGW_API_KEY is still set');
  });
});

it('a refusal on record is not said to be one of the present key', async () => {
  const server = await httpServer();
  server.answers.push(says({ error: { message: 'Invalid token' } }, 401));
  const user = userHere(server.url);
  const refused = await user.run(['video', 'c', 'submit', 'a boat', '--model', 'vendor-h3-mini']);
  expect([refused.code, refused.stderr]).toEqual([3, expect.stringContaining('with the key from')]);
  const later = await user.run(['jobs', 'wait', '@last'], { env: { MGW_API_KEY: 'sk-another' } });
  expect([later.code, later.stderr]).toEqual([3, expect.not.stringContaining('with the key from')]);
});
