import { expect, it } from 'vitest';
import { listSettings, type SettingRow } from '../../src/config/list.ts';
import { layersOf } from '../../src/config/resolve.ts';
import type { SettingFlags } from '../../src/config/rules.ts';
import type { Profile } from '../../src/config/schema.ts';

function list(profile: Profile, env: Record<string, string> = {}, flags: SettingFlags = {}): SettingRow[] {
  const layers = layersOf({ flags, env, file: { profiles: { default: profile } } });
  return listSettings(layers, { home: '/home/ann', platform: 'linux', cwd: '/' });
}

function find(rows: SettingRow[], key: string): SettingRow | undefined {
  return rows.find((row) => row.key === key);
}

it('shows every value with its source, and hides the key', () => {
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

it('shows what cannot be used with the reason, and the rest as it is', () => {
  const rows = list({ timeout: 'soon', base_url: 'https://h/v1', retries: 1 }, { MGW_SANDBOX: 'maybe' });
  expect(find(rows, 'timeout')?.problem).toContain('must be a number with a unit');
  expect(find(rows, 'base_url')?.problem).toContain('leave /v1 out');
  expect(find(rows, 'sandbox')?.problem).toContain('true or false');
  expect(find(rows, 'retries')?.value).toBe(1);
});

it('shows a scheme that follows from the header', () => {
  expect(find(list({}), 'c.auth_scheme')).toMatchObject({ value: 'Bearer', source: 'default' });
  expect(find(list({ c: { auth_header: 'X-Api-Key' } }), 'c.auth_scheme')).toMatchObject({ value: '' });
});
