import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { SettingRow } from '../../../src/config/setting-names.ts';
import { canaryKey, type User } from '../../support/cli.ts';
import { userHere } from '../../support/one-process.ts';
import { runOnScreen } from '../../support/screen.ts';

const configOf = (user: User): string => join(user.cwd, 'config', 'config.json');
const storedConfig = (user: User): unknown => JSON.parse(readFileSync(configOf(user), 'utf8'));

function put(user: User, text: string): void {
  mkdirSync(join(user.cwd, 'config'));
  writeFileSync(configOf(user), text, { mode: 0o600 });
}

describe('config set, get and unset', () => {
  it('read and change the current profile', async () => {
    const user = userHere();
    expect((await user.run(['config', 'set', 'tts.speaker', 'Anna'])).code).toBe(0);
    expect((await user.run(['--profile', 'work', 'config', 'set', 'retries', '2'])).code).toBe(0);
    expect(storedConfig(user)).toEqual({
      profiles: { default: { tts: { speaker: 'Anna' } }, work: { retries: 2 } },
    });
    expect(await user.run(['config', 'get', 'tts.speaker'])).toMatchObject({ code: 0, stdout: 'Anna\n' });
    expect((await user.run(['config', 'unset', 'tts.speaker'])).code).toBe(0);
    expect(await user.run(['config', 'get', 'tts.speaker'])).toMatchObject({ code: 2, stdout: '' });
    expect(storedConfig(user)).toEqual({ profiles: { default: {}, work: { retries: 2 } } });
  });

  it('refuse unknown settings and invalid values', async () => {
    const user = userHere();
    const invalid: [string[], string][] = [
      [
        ['set', 'tts.speakr', 'x'],
        'There is no setting "tts.speakr". Did you mean tts.speaker?\n  Nothing was sent. (exit 2)\n  next: mgw config set tts.speaker x',
      ],
      [['set', 'base_ulr', 'https://u:sesame@h'], 'next: mgw config get base_url'],
      [['set', 'timeout', '5'], 'a number with a unit'],
      [['set', 'base_url', 'https://u:sesame@h'], 'without a user name'],
      [['set', 'defaults.video.c.vendor-h3.duratoin', '8'], 'has no default "duratoin"'],
      [['set', 'defaults.video.c.vendor-h3.duration', '99'], '99 is not allowed for vendor-h3'],
      [['set', 'defaults.video.d.m.duration', '5'], 'Unknown protocol "d"; allowed: a, b, c.'],
      [['set', 'profile', 'nowhere'], 'There is no profile "nowhere"'],
      [['get', 'api_key'], 'never shown'],
      [['get', 'nothing'], 'There is no setting "nothing"'],
      [['unset', 'nothing'], 'There is no setting "nothing"'],
    ];
    for (const [args, message] of invalid) {
      const env = { MGW_API_KEY: canaryKey };
      const { code, stdout, stderr } = await user.run(['config', ...args], { env });
      expect([args, code, stdout, stderr]).toEqual([args, 2, '', expect.stringContaining(message)]);
      expect(stderr).not.toContain('sesame');
    }
  });

  it('accept a default for an unknown protocol, but a submission then refuses the default', async () => {
    const user = userHere();
    await user.run(['config', 'set', 'defaults.video.c.vendor-h3.duration', '5']);
    const file = (await user.run(['config', 'path'])).stdout.trim();
    writeFileSync(file, readFileSync(file, 'utf8').replace('"c":', '"d":'));
    const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3', '--sandbox', '--json'];
    const { code, json } = await user.run(submit);
    expect({ code, error: json.error }).toMatchObject({ code: 2, error: { code: 'config', charged: 'no' } });
    expect(json.error.message).toContain('defaults.video.d, but there is no protocol d.');
  });

  it('select the profile for later commands', async () => {
    const user = userHere();
    await user.run(['--profile', 'work', 'config', 'set', 'timeout', '5m']);
    expect((await user.run(['config', 'set', 'profile', 'work'])).code).toBe(0);
    expect((await user.run(['config', 'get', 'timeout'])).stdout).toBe('5m\n');
    await user.run(['config', 'unset', 'profile']);
    expect((await user.run(['config', 'get', 'timeout'])).stdout).toBe('30m\n');
  });

  it('remove a whole profile, which is then no longer selected', async () => {
    const user = userHere();
    put(user, '{"profile":"a.b","profiles":{"work":{"retries":2},"a.b":{"retries":3}}}');
    const missing = await user.run(['config', 'unset', 'profiles.nowhere']);
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining('There is no profile "nowhere"'),
    ]);
    expect((await user.run(['config', 'unset', 'profiles.a.b'])).code).toBe(0);
    expect(storedConfig(user)).toEqual({ profiles: { work: { retries: 2 } } });
    expect((await user.run(['config', 'unset', 'profiles.work'])).code).toBe(0);
    expect((await user.run(['config', 'get', 'retries'])).stdout).toBe('5\n');
  });

  it('repair a config file with an invalid value, and refuse an untrusted file', async () => {
    const user = userHere();
    put(user, '{"profile":"work","profiles":{"work":{"retries":"many"}}}');
    expect((await user.run(['config', 'list'])).code).toBe(2);
    expect((await user.run(['config', 'unset', 'retries'])).code).toBe(0);
    expect(storedConfig(user)).toEqual({ profile: 'work', profiles: { work: {} } });
    writeFileSync(configOf(user), '{"profiles":{"__proto__":{"retries":1}}}');
    expect((await user.run(['config', 'set', 'retries', '1'])).code).toBe(2);
  });
});

describe('config list', () => {
  it('prints each value with its source, and never prints a key', async () => {
    const user = userHere('https://gateway.example', { MGW_TIMEOUT: '90s' });
    await user.run(['config', 'set', 'tts.speaker', 'Anna']);
    const { code, stdout } = await user.run(['config', 'list']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^base_url +https:\/\/gateway\.example +environment MGW_BASE_URL$/m);
    expect(stdout).toMatch(/^timeout +1m30s +environment MGW_TIMEOUT$/m);
    expect(stdout).toMatch(/^tts\.speaker +Anna +profile default$/m);
    expect(stdout).toMatch(/^retries +5 +default$/m);
    expect(stdout).toMatch(/^tts\.format +mp3 +default$/m);
    expect(stdout).toMatch(/^tts\.sample_rate +24000 +default$/m);
    expect(stdout).toMatch(/^sandbox\.pace +3s +default$/m);
    expect(stdout).toMatch(/^api_key +\(hidden\) +environment MGW_API_KEY$/m);
    expect(stdout).not.toContain(canaryKey);
    const { json } = await user.run(['config', 'list', '--json', '--base-url', 'https://flag.example']);
    const rows = json['settings'] as SettingRow[];
    expect(rows.find(({ key }) => key === 'base_url')).toMatchObject({
      value: 'https://flag.example',
      source: 'flag',
    });
    expect(JSON.stringify(rows)).not.toContain(canaryKey);
  });

  it('prints an invalid value with the reason', async () => {
    const { code, stdout } = await userHere().run(['config', 'list'], { env: { MGW_TIMEOUT: 'soon' } });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^timeout +MGW_TIMEOUT soon: must be a number with a unit/m);
  });
});

it('config path prints the path of the config file', async () => {
  const user = userHere();
  expect(await user.run(['config', 'path'])).toMatchObject({ code: 0, stdout: `${configOf(user)}\n` });
});

describe('config edit', () => {
  const edit = (user: User, editor: string): ReturnType<User['run']> =>
    user.run(['config', 'edit'], { env: { EDITOR: editor, VISUAL: undefined } });
  const files = (user: User): string[] => readdirSync(join(user.cwd, 'config'));

  it('replaces the config file with the edited copy in mode 600, and removes the copy', async () => {
    const user = userHere();
    put(user, '{"profiles": {"default": {"timeout": "5m"}}}');
    const run = await edit(user, 'sed -i s/5m/6m/');
    expect(run.code, run.stderr).toBe(0);
    expect(storedConfig(user)).toEqual({ profiles: { default: { timeout: '6m' } } });
    expect(statSync(configOf(user)).mode & 0o777).toBe(0o600);
    expect(files(user)).toEqual(['config.json']);
  });

  it('repairs a config file that is not JSON, and creates a missing one', async () => {
    const user = userHere();
    put(user, '{"profiles": {"default": {"timeout": "5m",}}}');
    expect((await edit(user, "sed -i 's/,}/}/'")).code).toBe(0);
    expect(storedConfig(user)).toEqual({ profiles: { default: { timeout: '5m' } } });
    const other = userHere();
    expect((await edit(other, `sed -i 's/{}/{"retries": 2}/'`)).code).toBe(0);
    expect(storedConfig(other)).toEqual({ profiles: { default: { retries: 2 } } });
  });

  it.each([
    ['s/5m/5/', 'timeout in profile work 5: must be a number with a unit'],
    ['s/}}}/}}/', 'it is not JSON'],
    ['s/"duration":5/"duration":99/', '99 is not allowed'],
  ])(
    'exits with 2 and does not change the file if the result would be invalid: %s',
    async (change, reason) => {
      const user = userHere();
      const text =
        '{"profiles":{"work":{"timeout":"5m","defaults":{"video":{"c":{"vendor-h3":{"duration":5}}}}}}}';
      put(user, text);
      const run = await edit(user, `sed -i '${change}'`);
      expect([run.code, run.stdout]).toEqual([2, '']);
      expect(run.stderr).toContain(reason);
      expect(run.stderr).toContain('Nothing was changed.');
      expect(readFileSync(configOf(user), 'utf8')).toBe(text);
      expect(files(user)).toEqual(['config.json']);
    },
  );

  it('offers on a terminal to reopen an invalid file', async () => {
    const user = userHere();
    put(user, '{"profiles": {"default": {"timeout": "5m"}}}');
    const env = { ...user.env, EDITOR: 'sed -i -e s/bad/7m/ -e s/5m/bad/', VISUAL: undefined, CI: undefined };
    const run = await runOnScreen(['config', 'edit'], env, 80, 'y\n');
    expect(run.stderr).toContain('timeout in profile default bad');
    expect(run.code, run.stderr).toBe(0);
    expect(storedConfig(user)).toEqual({ profiles: { default: { timeout: '7m' } } });
  });

  it('saves the edit separately if another process has changed the config file in the meantime', async () => {
    const user = userHere();
    put(user, '{"profiles": {"default": {"timeout": "5m"}}}');
    const run = await edit(user, `sed -i s/5m/9m/ ${configOf(user)}; sed -i s/5m/6m/`);
    expect(run.code).toBe(2);
    expect(storedConfig(user)).toEqual({ profiles: { default: { timeout: '9m' } } });
    const copy = /Your changes are in (.*)\.\n/.exec(run.stderr)?.[1] ?? '';
    expect(readFileSync(copy, 'utf8')).toContain('6m');
  });

  it('suggests how to set an editor if none is set, and changes nothing if the editor fails', async () => {
    const user = userHere();
    const none = await edit(user, '');
    expect([none.code, none.stderr]).toEqual([
      2,
      expect.stringMatching(/next: (env EDITOR=|mgw config path)/),
    ]);
    expect((await edit(user, 'false')).code).toBe(2);
    expect(files(user)).toEqual([]);
  });
});
