import { describe, expect, it } from 'vitest';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../../src/config/resolve.ts';
import type { SettingFlags } from '../../src/config/rules.ts';
import type { ConfigFile, Profile } from '../../src/config/schema.ts';
import { MgwError } from '../../src/errors.ts';

interface Given {
  flags?: SettingFlags;
  env?: Record<string, string | undefined>;
  profile?: Profile;
  file?: ConfigFile;
  keyFile?: string;
}

function resolve({ flags = {}, env = {}, profile, file, keyFile }: Given = {}): Settings {
  return resolveSettings({
    flags,
    env,
    file: file ?? { profiles: profile ? { default: profile } : {} },
    host: { home: '/home/ann', platform: 'linux', cwd: '/work' },
    readKeyFile: (path) => {
      if (path !== '/key' || keyFile === undefined) throw new MgwError('config', 'no such key file');
      return keyFile;
    },
  });
}

function refusal(act: () => unknown): MgwError {
  try {
    act();
  } catch (error) {
    expect(error).toBeInstanceOf(MgwError);
    return error as MgwError;
  }
  throw new Error('it was accepted');
}

describe('the order of precedence of settings', () => {
  it('is flag, environment, profile, default, and the source of each value is reported', () => {
    const flags = { timeout: '1m' };
    const env = { MGW_TIMEOUT: '2m' };
    const profile = { timeout: '3m' };
    expect(resolve({ flags, env, profile }).timeoutMs).toEqual({
      value: 60_000,
      source: 'flag',
      name: '--timeout',
    });
    expect(resolve({ env, profile }).timeoutMs).toEqual({
      value: 120_000,
      source: 'env',
      name: 'MGW_TIMEOUT',
    });
    expect(resolve({ profile }).timeoutMs).toEqual({ value: 180_000, source: 'profile', name: 'default' });
    expect(resolve().timeoutMs).toEqual({ value: 1_800_000, source: 'default' });
  });

  it('is the same for the base URL, the speaker and the key', () => {
    const all = {
      flags: { baseUrl: 'https://flag.example', speaker: 'f' },
      env: { MGW_BASE_URL: 'https://env.example', MGW_TTS_SPEAKER: 'e', MGW_API_KEY: 'env-key' },
      profile: { base_url: 'https://profile.example', tts: { speaker: 'p' }, api_key: 'profile-key' },
    };
    const seen = (settings: Settings): unknown[] => [
      requireBaseUrl(settings).host,
      settings.ttsSpeaker.value,
      requireKey(settings),
    ];
    expect(seen(resolve(all))).toEqual(['flag.example', 'f', 'env-key']);
    expect(seen(resolve({ env: all.env, profile: all.profile }))).toEqual(['env.example', 'e', 'env-key']);
    expect(seen(resolve({ profile: all.profile }))).toEqual(['profile.example', 'p', 'profile-key']);
  });

  it('ignores an empty variable', () => {
    const env = {
      MGW_TIMEOUT: '',
      MGW_BASE_URL: '',
      MGW_SANDBOX: '',
      MGW_NO_INPUT: '',
      MGW_PROFILE: '',
      CI: '',
    };
    const settings = resolve({ env, profile: { base_url: 'https://profile.example' } });
    expect(settings.timeoutMs.source).toBe('default');
    expect(settings.baseUrl?.source).toBe('profile');
    expect(settings.sandbox.value).toBe(false);
    expect(settings.noInput.value).toBe(false);
    expect(settings.profile.value).toBe('default');
  });

  it('ends with a default for every setting', () => {
    const settings = resolve();
    expect(settings).toMatchObject({
      pollIntervalMs: { value: 5000 },
      requestTimeoutMs: { value: undefined },
      retries: { value: 5 },
      submitRetry5xx: { value: false },
      allowHttp: { value: false },
      trustedOrigins: { value: [] },
      cAuth: { value: { header: 'Authorization', scheme: 'Bearer' } },
      configDir: { value: '/home/ann/.config/mgw' },
      stateDir: { value: '/home/ann/.local/state/mgw' },
    });
  });
});

describe('profiles', () => {
  const file = {
    profile: 'work',
    profiles: { work: { base_url: 'https://work.example' }, home: { base_url: 'https://home.example' } },
  };

  it('are selected by flag, by variable, or in the file', () => {
    const env = { MGW_PROFILE: 'home' };
    expect(resolve({ file, env, flags: { profile: 'work' } }).baseUrl?.value).toBe('https://work.example');
    expect(resolve({ file, env }).baseUrl).toEqual({
      value: 'https://home.example',
      source: 'profile',
      name: 'home',
    });
    expect(resolve({ file }).profile).toEqual({ value: 'work', source: 'profile', name: 'work' });
  });

  it('must exist if they are selected', () => {
    const error = refusal(() => resolve({ file, flags: { profile: 'wrok' } }));
    expect(error).toMatchObject({ code: 'config', exitCode: 2 });
    expect(error.message).toContain('no profile "wrok"; available: work, home');
    expect(refusal(() => resolve({ file, env: { MGW_PROFILE: 'toString' } })).code).toBe('config');
    expect(refusal(() => resolve({ flags: { profile: '__proto__' } })).exitCode).toBe(2);
  });
});

describe('the base URL', () => {
  it('is reported as missing only if it is needed, and the error suggests mgw auth login and --sandbox', () => {
    const error = refusal(() => requireBaseUrl(resolve()));
    expect(error).toMatchObject({
      code: 'config',
      exitCode: 2,
      charged: 'no',
      next: ['mgw', 'auth', 'login', '--base-url', 'URL'],
    });
    expect(error.message).toMatch(/mgw auth login.*--sandbox/);
  });

  it('is refused only if it is needed, and the error contains its source', () => {
    const settings = resolve({ env: { MGW_BASE_URL: 'https://h/v1' } });
    expect(settings.baseUrl).toBeUndefined();
    const error = refusal(() => requireBaseUrl(settings));
    expect(error).toMatchObject({ code: 'config', exitCode: 2 });
    expect(error.message).toBe('MGW_BASE_URL https://h/v1: must be an address without /v1, which mgw adds.');
    expect(refusal(() => requireBaseUrl(resolve({ flags: { baseUrl: 'h' } }))).code).toBe('usage');
  });

  it('is not printed if it contains a password', () => {
    const error = refusal(() => requireBaseUrl(resolve({ profile: { base_url: 'https://u:sesame@h' } })));
    expect(error.message).toContain('base_url in profile default');
    expect(error.message).not.toContain('sesame');
  });

  it('is accepted with http:// on loopback, or elsewhere if the user allows it', () => {
    const flags = { baseUrl: 'http://10.0.0.1' };
    expect(refusal(() => requireBaseUrl(resolve({ flags }))).message).toContain('--allow-http');
    expect(requireBaseUrl(resolve({ flags: { ...flags, allowHttp: true } })).href).toBe('http://10.0.0.1/');
    expect(requireBaseUrl(resolve({ flags, profile: { allow_http: true } })).href).toBe('http://10.0.0.1/');
    expect(requireBaseUrl(resolve({ flags: { baseUrl: 'http://127.0.0.1:1' } })).port).toBe('1');
  });
});

describe('the key', () => {
  it('is reported as missing only if it is needed, with exit code 2', () => {
    const error = refusal(() => requireKey(resolve()));
    expect(error).toMatchObject({ code: 'config', exitCode: 2, charged: 'no' });
    expect(error.message).toMatch(/mgw auth login.*MGW_API_KEY.*--sandbox/);
  });

  it('is read from a file, without its final line break', () => {
    const settings = resolve({
      env: { MGW_API_KEY_FILE: '/key' },
      keyFile: 'sk-1\n',
      profile: { api_key: 'other' },
    });
    expect(settings.key).toMatchObject({ source: 'env', name: 'MGW_API_KEY_FILE' });
    expect(requireKey(settings)).toBe('sk-1');
  });

  it('is read only once, when it is needed', () => {
    let reads = 0;
    const settings = resolveSettings({
      flags: {},
      env: { MGW_API_KEY_FILE: '/dev/fd/63' },
      file: { profiles: {} },
      readKeyFile: () => `sk-${++reads}`,
    });
    expect(reads).toBe(0);
    expect([requireKey(settings), requireKey(settings)]).toEqual(['sk-1', 'sk-1']);
  });

  it('is read from MGW_API_KEY rather than from MGW_API_KEY_FILE', () => {
    expect(requireKey(resolve({ env: { MGW_API_KEY: 'sk-2', MGW_API_KEY_FILE: '/none' } }))).toBe('sk-2');
  });

  it('is not replaced by a different key if it is empty or its file is missing', () => {
    const profile = { api_key: 'other' };
    for (const env of [{ MGW_API_KEY: '' }, { MGW_API_KEY_FILE: '' }])
      expect(refusal(() => requireKey(resolve({ env, profile }))).message).toContain('it is empty');
    expect(refusal(() => requireKey(resolve({ env: { MGW_API_KEY_FILE: '/x' }, profile }))).message).toBe(
      'no such key file',
    );
  });

  it.each(['Bearer sesame', 'ses ame', '"sesame"', 'sesame\n', 'sésame'])(
    'is refused, and not printed, if it is %j',
    (key) => {
      for (const source of [{ env: { MGW_API_KEY: key } }, { profile: { api_key: key } }]) {
        const error = refusal(() => requireKey(resolve(source)));
        expect(error).toMatchObject({ code: 'config', exitCode: 2 });
        expect(error.message).not.toMatch(/s[eé]s/);
      }
    },
  );
});

describe('the values of settings', () => {
  it('may include a poll interval below 5 s only on loopback', () => {
    const flags = { pollInterval: '50ms' };
    const remote = { MGW_BASE_URL: 'https://gateway.example' };
    expect(resolve({ flags, env: { MGW_BASE_URL: 'http://127.0.0.1:1' } }).pollIntervalMs.value).toBe(50);
    expect(resolve({ flags: { ...flags, sandbox: true }, env: remote }).pollIntervalMs.value).toBe(50);
    const error = refusal(() => resolve({ flags, env: remote }));
    expect(error).toMatchObject({ code: 'usage', exitCode: 2 });
    expect(error.message).toContain('--poll-interval 50ms: must be 5s or more');
    expect(refusal(() => resolve({ env: remote, profile: { poll_interval: '4999ms' } })).code).toBe('config');
    expect(resolve({ flags: { pollInterval: '5s' }, env: remote }).pollIntervalMs.value).toBe(5000);
  });

  it.each([
    [{ flags: { timeout: '5' } }, '--timeout 5: must be a number with a unit'],
    [{ flags: { timeout: '-1m' } }, '--timeout -1m: '],
    [{ env: { MGW_TIMEOUT: 'soon' } }, 'MGW_TIMEOUT soon: '],
    [
      { profile: { request_timeout: '0s' } },
      'request_timeout in profile default 0s: must be a duration from 1ms',
    ],
    [{ flags: { retries: '-1' } }, '--retries -1: must be a whole number from 0 (none) to 100'],
    [{ flags: { retries: '1e1' } }, '--retries 1e1: '],
    [{ profile: { retries: 101 } }, 'retries in profile default 101: '],
    [{ env: { MGW_SANDBOX: 'maybe' } }, 'MGW_SANDBOX maybe: must be true or false'],
    [{ profile: { c: { auth_header: 'Host' } } }, 'c.auth_header in profile default Host: '],
    [{ profile: { c: { auth_header: 'X: y' } } }, 'c.auth_header in profile default X: y: '],
    [{ profile: { c: { auth_scheme: 'a b' } } }, 'c.auth_scheme in profile default a b: '],
    [{ flags: { trustOrigin: ['https://h/p'] } }, '--trust-origin https://h/p: must be an origin'],
    [{ profile: { tts: { sample_rate: 0 } } }, 'tts.sample_rate in profile default 0: '],
  ] satisfies [Given, string][])('are refused if they are invalid: %j', (given, message) => {
    const error = refusal(() => resolve(given));
    expect(error.exitCode).toBe(2);
    expect(error.message).toContain(message);
  });

  it('are accepted if they are durations that the command line has parsed into milliseconds', () => {
    expect(resolve({ flags: { timeout: 90_000 } }).timeoutMs.value).toBe(90_000);
  });
});

describe('the settings', () => {
  it('disable prompts in CI, or by a flag or variable', () => {
    expect(resolve({ env: { CI: 'true' } }).noInput).toEqual({ value: true, source: 'env', name: 'CI' });
    expect(resolve({ env: { CI: 'woodpecker' } }).noInput.value).toBe(true);
    expect(resolve({ env: { CI: 'false' } }).noInput.value).toBe(false);
    expect(resolve({ env: { MGW_NO_INPUT: '1' } }).noInput.name).toBe('MGW_NO_INPUT');
    expect(resolve({ env: { MGW_NO_INPUT: '0', CI: '1' } }).noInput.value).toBe(false);
    expect(resolve({ flags: { input: false } }).noInput.name).toBe('--no-input');
    expect(resolve({ flags: { input: true } }).noInput.value).toBe(false);
  });

  it('combine the trusted origins from the flag and the profile', () => {
    const profile = { trusted_origins: ['https://A.example:443', 'https://b.example'] };
    const flags = { trustOrigin: ['https://c.example', 'https://b.example/'] };
    expect(resolve({ profile, flags }).trustedOrigins.value).toEqual([
      'https://c.example',
      'https://b.example',
      'https://a.example',
    ]);
  });

  it("omit the scheme of Protocol C's key if the header is not Authorization", () => {
    const scheme = (c: Profile['c']): unknown => resolve({ profile: { c } }).cAuth.value;
    expect(scheme({ auth_header: 'X-Api-Key' })).toEqual({ header: 'X-Api-Key', scheme: '' });
    expect(scheme({ auth_header: 'X-Api-Key', auth_scheme: 'Key' })).toEqual({
      header: 'X-Api-Key',
      scheme: 'Key',
    });
    expect(scheme({ auth_scheme: '' })).toEqual({ header: 'Authorization', scheme: '' });
  });

  it("apply a model's defaults only to that model", () => {
    const profile = { defaults: { video: { a: { 'veo-3.1': { duration: 8, aspect_ratio: '16:9' } } } } };
    const { defaultsFor } = resolve({ profile });
    expect(defaultsFor('a', 'veo-3.1')).toEqual({ duration: 8, 'aspect-ratio': '16:9' });
    expect(defaultsFor('b', 'veo-3.1')).toEqual({});
    expect(defaultsFor('a', 'veo-3')).toEqual({});
    expect(defaultsFor('a', 'toString')).toEqual({});
    expect(defaultsFor('a', undefined)).toEqual({});
  });
});
