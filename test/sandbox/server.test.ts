import { statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { LARGEST_BODY } from '../../src/sandbox/body.ts';
import { sandbox } from './harness.ts';

/** The status of a call whose headers are sent as they are, also those that fetch would not send. */
function rawStatus(
  url: string,
  method: string,
  headers: Record<string, string>,
): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method, headers, agent: false }, (response) => {
      resolve(response.statusCode);
      call.destroy();
    });
    call.on('error', reject);
    call.end();
  });
}

describe('who may call', () => {
  test.each<[string, Record<string, string>, number]>([
    ['a program', {}, 200],
    ['a program that says localhost', { Host: 'localhost:PORT' }, 200],
    ['a name that was rebound to loopback', { Host: 'attacker.example:PORT' }, 403],
    ['another port', { Host: '127.0.0.1:1' }, 403],
    ['a page of another origin', { Origin: 'https://attacker.example' }, 403],
    ['a page in a sandboxed frame', { Origin: 'null' }, 403],
    ['an image in a page', { 'Sec-Fetch-Site': 'cross-site' }, 403],
    ['an address typed into a browser', { 'Sec-Fetch-Site': 'none' }, 200],
  ])('%s', async (_, extra, status) => {
    const { url, key } = await sandbox();
    const port = new URL(url).port;
    const headers = Object.fromEntries(
      Object.entries(extra).map(([name, value]) => [name, value.replace('PORT', port)]),
    );
    expect(await rawStatus(`${url}/v1/models`, 'GET', { Authorization: `Bearer ${key}`, ...headers })).toBe(
      status,
    );
  });

  test('nobody by another address of this machine', async () => {
    const { url, key } = await sandbox();
    const other = url.replace('127.0.0.1', '127.0.0.2');
    const headers = { Authorization: `Bearer ${key}`, Host: new URL(url).host };
    await expect(rawStatus(`${other}/v1/models`, 'GET', headers)).rejects.toThrow();
  });

  test('a preflight of a page is refused without any permission', async () => {
    const gateway = await sandbox();
    const headers = { Origin: 'https://attacker.example', 'Access-Control-Request-Method': 'POST' };
    expect(await rawStatus(`${gateway.url}/v1/videos`, 'OPTIONS', headers)).toBe(403);
  });

  test.each(['', 'Bearer', 'Bearer wrong', 'sandbox-key', 'bearer sandbox-key', 'Bearer sandbox-key x'])(
    'the Authorization %j is no key',
    async (Authorization) => {
      const gateway = await sandbox();
      const answer = await gateway.call('GET', '/v1/models', { headers: { Authorization } });
      expect(answer.status).toBe(401);
      const requestId = answer.headers.get('x-oneapi-request-id') ?? 'none';
      expect(answer.at('error')).toEqual({
        message: `Invalid token (request id: ${requestId})`,
        type: 'new_api_error',
        code: '',
      });
    },
  );

  test('a key that was given is good, also for a later sandbox over the same state', async () => {
    const first = await sandbox({ keys: ['second-key'] });
    const second = await sandbox({ stateDir: first.stateDir });
    const headers = { Authorization: 'Bearer second-key' };
    expect((await first.call('GET', '/v1/models', { headers })).status).toBe(200);
    expect((await second.call('GET', '/v1/models', { headers })).status).toBe(200);
  });
});

describe('the server', () => {
  test.each([
    ['POST', '/v1/nothing'],
    ['PUT', '/v1/videos'],
    ['POST', '/v1/videos/'],
    ['GET', '//v1/models'],
  ])('%s %s is no endpoint', async (method, path) => {
    const gateway = await sandbox();
    const answer = await gateway.call(method, path);
    expect(answer.status).toBe(404);
    expect(answer.at('error.message')).toBe(`Invalid URL (${method} ${path})`);
  });

  test('refuses a body beyond its bound, by its length and by its bytes', async () => {
    const gateway = await sandbox();
    const headers = { Authorization: `Bearer ${gateway.key}`, 'Content-Type': 'application/json' };
    const length = { 'Content-Length': String(LARGEST_BODY + 1) };
    expect(await rawStatus(`${gateway.url}/v1/videos`, 'POST', { ...headers, ...length })).toBe(413);
    expect(await endlessStatus(`${gateway.url}/v1/videos`, headers)).toBe(413);
  });

  test('keeps its state from others', async () => {
    const gateway = await sandbox();
    await gateway.call('POST', '/v1/videos', { body: { model: 'vendor-h3', prompt: 'x' } });
    const mode = (path: string): string => (statSync(join(gateway.stateDir, path)).mode & 0o777).toString(8);
    expect([mode('.'), mode('tasks'), mode('keys'), mode('bill.jsonl')]).toEqual([
      '700',
      '700',
      '700',
      '600',
    ]);
  });

  test('does not start with a fault that does not exist', async () => {
    await expect(sandbox({ faults: ['pol-502'] })).rejects.toThrow(/did you mean poll-502\?/);
  });
});

/** Streams zeros without an end until an answer comes. */
function endlessStatus(url: string, headers: Record<string, string>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method: 'POST', headers, agent: false }, (response) => {
      resolve(response.statusCode);
      call.destroy();
    });
    call.on('error', reject);
    const piece = Buffer.alloc(1024 * 1024, '0');
    const pump = (): void =>
      void call.write(piece, (error) => (error || call.destroyed ? undefined : pump()));
    pump();
  });
}
