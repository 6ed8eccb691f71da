import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  storedValue,
  keyPath,
  settableKeys,
  withValue,
  type KeyPath,
  listSettings,
  type SettingRow,
} from '../../src/config/setting-names.ts';
import { checkConfig, type Profile } from '../../src/config/schema.ts';
import { MgwError } from '../../src/errors.ts';
import { layersOf } from '../../src/config/resolve.ts';
import type { SettingFlags } from '../../src/config/rules.ts';

describe('keyPath', () => {
  it("reads the last part of a default's name as the flag, regardless of the model's name", () => {
    expect(keyPath('defaults.video.a.veo-3.duration')).toEqual([
      'defaults',
      'video',
      'a',
      'veo-3',
      'duration',
    ]);
    expect(keyPath('defaults.video.b.Kling.2.1-x/y:z.aspect_ratio')).toEqual([
      'defaults',
      'video',
      'b',
      'Kling.2.1-x/y:z',
      'aspect-ratio',
    ]);
  });

  it('accepts every setting', () => {
    expect(keyPath('base_url')).toEqual(['base_url']);
    expect(keyPath('submit.retry_5xx')).toEqual(['submit', 'retry_5xx']);
    expect(keyPath('prices.b.GV 2.0')).toEqual(['prices', 'b', 'GV 2.0']);
    // The store's other settings are members next to `url`.
    const pathOf = (key: string): string => (key === 'store' ? 'store.url' : key);
    for (const key of settableKeys) expect(keyPath(key).join('.')).toBe(pathOf(key));
  });

  it.each([
    '',
    'tts',
    'tts.speakr',
    'defaults.video.D.m.duration',
    'defaults.video.a.duration',
    'defaults.video.a.__proto__.duration',
    'defaults.video.a.m.',
    '__proto__',
    'toString',
    'defaults.video.a.m\nx.duration',
    'prices.c. m',
    'prices',
    'prices.c',
    'prices.D.m',
    'prices.c.__proto__',
  ])('refuses %j', (name) => {
    expect(() => keyPath(name)).toThrow(MgwError);
  });
});

describe('storedValue', () => {
  const stored = (name: string, ...words: string[]): unknown => storedValue(keyPath(name), words, {});

  it('returns a value that the schema accepts for every setting', () => {
    const words: Record<string, string> = {
      base_url: 'https://gateway.example/',
      trusted_origins: 'https://a.example,https://b.example',
      allow_http: 'yes',
      allow_insecure_database: 'no',
      timeout: '20m',
      poll_interval: '5s',
      request_timeout: '1m',
      retries: '3',
      'submit.retry_5xx': 'true',
      'tts.speaker': 'anna',
      'tts.format': 'mp3',
      'tts.sample_rate': '24000',
      'c.auth_header': 'X-Api-Key',
      'c.auth_scheme': '',
      'sandbox.pace': '2s',
      'sandbox.balance': '100',
      'sandbox.concurrency': '4',
      'sandbox.per_minute': '60',
      budget: 'clips',
      currency: 'USD',
      state: 'postgres://mgw@db.example/mgw?lease=20s',
      store: 's3://bucket/inputs',
      'store.endpoint': 'https://s3.example/',
      'store.expires': '12h',
      'store.command': './upload.sh',
      'prices.tts': '10k_characters=2',
      'prices.group_multiplier': '1.10',
      'prices.user_multiplier': '2',
      update_url: 'https://mgw.example/mgw.json',
    };
    expect(Object.keys(words).sort()).toEqual([...settableKeys].sort());
    let profile: Profile = {};
    for (const [name, word] of Object.entries(words))
      profile = withValue(profile, keyPath(name), storedValue(keyPath(name), [word], profile));
    expect(checkConfig({ profiles: { default: profile } })).toEqual({
      file: { profiles: { default: profile } },
    });
    expect(profile).toMatchObject({
      base_url: 'https://gateway.example',
      trusted_origins: ['https://a.example', 'https://b.example'],
      allow_http: true,
      allow_insecure_database: false,
      timeout: '20m',
      retries: 3,
      tts: { speaker: 'anna', sample_rate: 24000 },
      c: { auth_scheme: '' },
      prices: { tts: '10k_characters=2', group_multiplier: '1.10' },
    });
  });

  it("returns a price's rates as one string, regardless of the model's name", () => {
    const name = 'prices.c.vendor-h3.1:x';
    expect(keyPath(name)).toEqual(['prices', 'c', 'vendor-h3.1:x']);
    expect(stored(name, 'second=0.2', 'resolution=2K: second=0.4')).toBe(
      'second=0.2; resolution=2K: second=0.4',
    );
    expect(() => stored('prices.group_multiplier', 'abc')).toThrow('a decimal number');
    expect(() => stored('prices.group_multiplier', '1', '2')).toThrow('one value');
  });

  it('converts a default to a number or boolean only if its text is preserved', () => {
    const name = 'defaults.video.a.veo-3.duration';
    expect(stored(name, '8')).toBe(8);
    expect(stored(name, '-1.5')).toBe(-1.5);
    expect(stored(name, '08')).toBe('08');
    expect(stored(name, '1.10')).toBe('1.10');
    expect(stored(name, '1e3')).toBe('1e3');
    expect(stored(name, '12345678901234567890')).toBe('12345678901234567890');
    expect(stored(name, 'Infinity')).toBe('Infinity');
    expect(stored(name, 'true')).toBe(true);
    expect(stored(name, '720p')).toBe('720p');
    expect(stored(name, 'a', 'b')).toEqual(['a', 'b']);
  });

  it.each([
    [['timeout', '5'], /number with a unit/],
    [['retries', 'many'], /whole number/],
    [['tts.sample_rate', '0'], /positive whole number/],
    [['base_url', 'https://h/v1'], /without \/v1/],
    [['base_url', 'http://h'], /https/],
    [['trusted_origins', 'https://h/x'], /an origin/],
    [['allow_http', 'perhaps'], /true or false/],
    [['tts.speaker', 'a', 'b'], /one value/],
    [['tts.speaker'], /one value/],
    [['store.command', ''], /a program and its arguments/],
    [['store.command'], /a program and its arguments/],
  ])('refuses %j', ([name, ...words], why) => {
    expect(() => stored(name ?? '', ...words)).toThrow(why);
  });
});

describe('withValue', () => {
  const path = fc.array(fc.constantFrom('a', 'b', 'c'), {
    minLength: 1,
    maxLength: 4,
  }) as fc.Arbitrary<unknown> as fc.Arbitrary<KeyPath>;

  it('sets one value without changing the original or any other value', () => {
    fc.assert(
      fc.property(
        fc.object({ key: fc.constantFrom('a', 'b', 'c') }),
        path,
        fc.string(),
        (profile, steps, value) => {
          const before = structuredClone(profile);
          const after = withValue(profile, steps, value);
          expect(
            steps.reduce<unknown>((inner, step) => (inner as Record<string, unknown>)[step], after),
          ).toBe(value);
          expect(profile).toEqual(before);
          expect({ ...after, [steps[0]]: undefined }).toEqual({ ...before, [steps[0]]: undefined });
        },
      ),
    );
  });

  it('removes a value and the objects that become empty', () => {
    const profile = { tts: { speaker: 's' }, c: { auth_header: 'h', auth_scheme: '' } };
    expect(withValue(profile, ['tts', 'speaker'], undefined)).toEqual({ c: profile.c });
    expect(withValue(profile, ['c', 'auth_header'], undefined)).toEqual({
      tts: profile.tts,
      c: { auth_scheme: '' },
    });
    expect(withValue(profile, ['defaults', 'video'], undefined)).toEqual(profile);
  });
});

function list(profile: Profile, env: Record<string, string> = {}, flags: SettingFlags = {}): SettingRow[] {
  const layers = layersOf({ flags, env, file: { profiles: { default: profile } } });
  return listSettings(layers, { home: '/home/ann', platform: 'linux', cwd: '/' });
}

function find(rows: SettingRow[], key: string): SettingRow | undefined {
  return rows.find((row) => row.key === key);
}

it('mgw config list prints every value with its source, but not the key', () => {
  const rows = list(
    { api_key: 'sk-sesame', timeout: '90m', defaults: { video: { a: { 'veo-3.1': { duration: 8 } } } } },
    { MGW_BASE_URL: 'https://gateway.example' },
    { retries: '2' },
  );
  expect(find(rows, 'base_url')).toEqual({
    key: 'base_url',
    value: 'https://gateway.example',
    source: 'env',
    name: 'MGW_BASE_URL',
  });
  expect(find(rows, 'api_key')).toEqual({
    key: 'api_key',
    value: '(hidden)',
    source: 'profile',
    name: 'default',
  });
  expect(find(rows, 'timeout')).toMatchObject({ value: '1h30m', source: 'profile' });
  expect(find(rows, 'poll_interval')).toEqual({ key: 'poll_interval', value: '5s', source: 'default' });
  expect(find(rows, 'retries')).toMatchObject({ value: 2, source: 'flag', name: '--retries' });
  expect(find(rows, 'defaults.video.a.veo-3.1.duration')).toMatchObject({ value: 8, source: 'profile' });
  expect(find(rows, 'state_dir')).toMatchObject({ value: '/home/ann/.local/state/mgw', source: 'default' });
  expect(find(rows, 'tts.speaker')).toEqual({ key: 'tts.speaker', source: 'default' });
  expect(JSON.stringify(rows)).not.toContain('sesame');
});

it('mgw config list prints an unusable value with the reason, and the other values unchanged', () => {
  const rows = list({ timeout: 'soon', base_url: 'https://h/v1', retries: 1 }, { MGW_SANDBOX: 'maybe' });
  expect(find(rows, 'timeout')?.problem).toContain('must be a number with a unit');
  expect(find(rows, 'base_url')?.problem).toContain('without /v1');
  expect(find(rows, 'sandbox')?.problem).toContain('true or false');
  expect(find(rows, 'retries')?.value).toBe(1);
});

it('mgw config list prints a scheme that is derived from the header', () => {
  expect(find(list({}), 'c.auth_scheme')).toMatchObject({ value: 'Bearer', source: 'default' });
  expect(find(list({ c: { auth_header: 'X-Api-Key' } }), 'c.auth_scheme')).toMatchObject({ value: '' });
});
