import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { userHere } from '../support/one-process.ts';

beforeEach(() => {
  vi.stubEnv('HTTPS_PROXY', 'socks5://user:secret@127.0.0.1:9');
  vi.stubEnv('https_proxy', '');
  vi.stubEnv('NO_PROXY', '');
  vi.stubEnv('no_proxy', '');
});

afterEach(() => void vi.unstubAllEnvs());

it.each([
  'video c submit a-boat -m vendor-h3-mini',
  'video c status task_0001',
  'tts hello -o out.mp3 --speaker x',
  'responses hello -m gpt',
  'models',
])('mgw %s exits with 2 and sends nothing if the proxy is not supported', async (words) => {
  const run = await userHere('https://gateway.invalid').run([...words.split(' '), '--json']);
  expect(run.code).toBe(2);
  expect(run.json.error).toMatchObject({ code: 'config', charged: 'no', retry: 'never' });
  expect(run.json.error.message).toContain(
    'HTTPS_PROXY is a socks5 proxy; mgw supports only http and https proxies.',
  );
});

it('mgw doctor reports a proxy that is not supported, and exits with 2', async () => {
  const run = await userHere('https://gateway.invalid').run(['doctor']);
  expect([run.code, run.stdout]).toEqual([2, expect.stringContaining('HTTPS_PROXY is a socks5 proxy')]);
});
