import { statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { maxBodyBytes } from '../../src/sandbox/body.ts';
import { isForeign } from '../../src/sandbox/listener.ts';
import { startSandbox } from '../../src/sandbox/server.ts';
import { sandbox, type Answer } from './harness.ts';

/** Returns the status of a call whose headers are sent unchanged, including headers that fetch would not send. */
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

describe('a request to the sandbox', () => {
  const senders: [string, Record<string, string>, number][] = [
    ['a program', {}, 200],
    ['a program that uses localhost', { Host: 'localhost:PORT' }, 200],
    ['a name that was rebound to loopback', { Host: 'attacker.example:PORT' }, 403],
    ['another port', { Host: '127.0.0.1:1' }, 403],
    ['a page of the sandbox', { Origin: 'http://127.0.0.1:PORT' }, 200],
    ['a page of another origin', { Origin: 'https://attacker.example' }, 403],
    ['a page in a sandboxed frame', { Origin: 'null' }, 403],
    ['an image in a page', { 'Sec-Fetch-Site': 'cross-site' }, 403],
    ['a page of another port', { 'Sec-Fetch-Site': 'same-site' }, 403],
    ['an address typed into a browser', { 'Sec-Fetch-Site': 'none' }, 200],
    ["a browser's player", { 'Sec-Fetch-Site': 'same-origin', Range: 'bytes=0-' }, 200],
    ['a program that uses localhost in upper case', { Host: 'LOCALHOST:PORT' }, 200],
  ];
  test('is accepted from programs and pages of the sandbox, and refused from all other pages', async () => {
    const { url, key } = await sandbox();
    const port = new URL(url).port;
    const seen = senders.map(async ([sender, extra]) => {
      const headers: Record<string, string> = { Authorization: `Bearer ${key}` };
      for (const [name, value] of Object.entries(extra)) headers[name] = value.replace('PORT', port);
      return [sender, extra, await rawStatus(`${url}/v1/models`, 'GET', headers)];
    });
    expect(await Promise.all(seen)).toEqual(senders);
    const preflight = { Origin: 'https://attacker.example', 'Access-Control-Request-Method': 'POST' };
    expect(await rawStatus(`${url}/v1/videos`, 'OPTIONS', preflight)).toBe(403);
  });

  test('is refused if it is sent to another address of this machine', async () => {
    const { url, key } = await sandbox();
    const other = url.replace('127.0.0.1', '127.0.0.2');
    const headers = { Authorization: `Bearer ${key}`, Host: new URL(url).host };
    await expect(rawStatus(`${other}/v1/models`, 'GET', headers)).rejects.toThrow();
  });

  test.each([
    ['localhost', false],
    ['127.0.0.1', false],
    ['localhost:80', false],
    ['localhost:8080', true],
    ['attacker.example', true],
    ['', true],
  ])('counts as foreign, at port 80, by the Host header %j: %j', (host, foreign) => {
    expect(isForeign({ host }, 'http://127.0.0.1')).toBe(foreign);
    expect(isForeign({ host: 'localhost' }, 'http://127.0.0.1:8080')).toBe(true);
  });

  test('is refused if its Authorization header does not contain a key of the sandbox', async () => {
    const gateway = await sandbox();
    const wrong = ['', 'Bearer', 'Bearer wrong', 'sandbox-key', 'bearer sandbox-key', 'Bearer sandbox-key x'];
    for (const Authorization of wrong) {
      const answer = await gateway.call('GET', '/v1/models', { headers: { Authorization } });
      expect(answer.status, Authorization).toBe(401);
      const requestId = answer.headers.get('x-oneapi-request-id') ?? 'none';
      expect(answer.at('error')).toEqual({
        message: `Invalid token (request id: ${requestId})`,
        type: 'new_api_error',
        code: '',
      });
    }
  });

  test('is accepted with a configured key, even by a later sandbox with the same state', async () => {
    const first = await sandbox({ keys: ['second-key'] });
    const second = await sandbox({ stateDir: first.stateDir });
    const headers = { Authorization: 'Bearer second-key' };
    expect((await first.call('GET', '/v1/models', { headers })).status).toBe(200);
    expect((await second.call('GET', '/v1/models', { headers })).status).toBe(200);
  });
});

describe('a sandbox key for some models', () => {
  const limited = { Authorization: 'Bearer small-key' };

  test('can list and use only those models', async () => {
    const gateway = await sandbox({ keys: ['small-key=vendor-h3-mini,Video-B-Lite'] });
    const listed = await gateway.call('GET', '/v1/models', { headers: limited });
    expect((listed.at('data') as { id: string }[]).map(({ id }) => id)).toEqual([
      'Video-B-Lite',
      'vendor-h3-mini',
    ]);
    const one = await gateway.call('GET', '/v1/models/vendor-h3', { headers: limited });
    expect(one.at('error.code')).toBe('model_not_found');
    const submit = (model: string, headers = {}): Promise<Answer> =>
      gateway.call('POST', '/v1/videos', { body: { model, prompt: 'x' }, headers });
    expect((await submit('vendor-h3-mini', limited)).status).toBe(200);
    expect((await submit('vendor-h3', limited)).at('error.code')).toBe('model_not_found');
    expect((await submit('vendor-h3')).status).toBe(200);
    const a = await gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { headers: limited });
    expect(a.at('error.code')).toBe('model_not_found');
    const body = { ModelName: 'Video-B', ModelVersion: '1.0', Prompt: 'x' };
    const b = await gateway.act('CreateAigcVideoTask', body, limited);
    expect(b.at('Response.Error.Code')).toBe('InvalidParameterValue');
    const asking = { body: { model: 'text-1', input: 'x' }, headers: limited };
    expect((await gateway.call('POST', '/v1/responses', asking)).at('error.code')).toBe('model_not_found');
    const speech = { 'X-Api-Key': 'small-key', 'X-Api-Resource-Id': 'speech-tts-2.0' };
    const spoken = { body: { req_params: { text: 'x' } }, headers: speech };
    const tts = await gateway.call('POST', '/api/v3/tts/unidirectional', spoken);
    expect([tts.status, tts.at('header.code')]).toEqual([403, 45_000_030]);
  });

  test('can be the default key, until the default key is issued again', async () => {
    const first = await sandbox({ keys: ['sandbox-key=text-1'] });
    expect((await first.call('GET', '/v1/models')).at('data')).toHaveLength(1);
    const second = await sandbox({ stateDir: first.stateDir });
    expect((await second.call('GET', '/v1/models')).at('data')).not.toHaveLength(1);
  });

  test.each([
    ['key=vendor-h4', /There is no model vendor-h4; available: video-a, /],
    ['=vendor-h3', /A key must be one word/],
    ['two words', /A key must be one word/],
  ])('is refused if it is %j', async (key, message) => {
    await expect(sandbox({ keys: [key] })).rejects.toThrow(message);
  });
});

describe('the sandbox server', () => {
  test.runIf(process.platform === 'linux')('does not start if the system refuses its folder', async () => {
    await expect(startSandbox({ stateDir: '/proc/no/sandbox' })).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test('has no endpoint at other paths and for other methods', async () => {
    const gateway = await sandbox();
    const requests = [
      ['POST', '/v1/nothing'],
      ['PUT', '/v1/videos'],
      ['POST', '/v1/videos/'],
      ['GET', '//v1/models'],
    ] as const;
    for (const [method, path] of requests) {
      const answer = await gateway.call(method, path);
      expect(answer.status, path).toBe(404);
      expect(answer.at('error.message')).toBe(`Invalid URL (${method} ${path})`);
    }
  });

  test('refuses a body above its limit, by the declared length and by the received bytes', async () => {
    const gateway = await sandbox();
    const headers = { Authorization: `Bearer ${gateway.key}`, 'Content-Type': 'application/json' };
    const length = { 'Content-Length': String(maxBodyBytes + 1) };
    expect(await rawStatus(`${gateway.url}/v1/videos`, 'POST', { ...headers, ...length })).toBe(413);
    expect(await endlessStatus(`${gateway.url}/v1/videos`, headers)).toBe(413);
  });

  test('refuses JSON that is nested too deeply, even inside a Protocol B string', async () => {
    const gateway = await sandbox();
    const nested = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
    const body = `{"model":"text-1","x":${nested}}`;
    const headers = { 'X-TC-Action': 'CreateAigcVideoTask', 'X-TC-Version': '2018-07-17' };
    for (const path of ['/v1/videos', '/v1/responses', '/v1beta/models/video-a:predictLongRunning', '/']) {
      const answer = await gateway.call('POST', path, { body, headers });
      expect([answer.status, answer.at('error.message')], path).toEqual([
        400,
        'The JSON is nested too deeply',
      ]);
    }
    const extended = { ModelName: 'Video-B-Ext', ModelVersion: '3.0', Prompt: 'x', ExtInfo: nested };
    const answer = await gateway.act('CreateAigcVideoTask', extended);
    expect(answer.at('Response.Error.Code')).toBe('InvalidParameterValue');
  });

  test('uses the same port for its file host after a restart, so that file URLs stay valid', async () => {
    const first = await sandbox();
    const second = await sandbox({ stateDir: first.stateDir });
    expect(second.fileUrl).not.toBe(first.fileUrl);
    await first.close();
    await second.close();
    expect((await sandbox({ stateDir: first.stateDir })).fileUrl).toBe(first.fileUrl);
  });

  test('creates its state with access only for the owner', async () => {
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

  test('refuses to start with an unknown fault', async () => {
    await expect(sandbox({ faults: ['pol-502'] })).rejects.toThrow(/Did you mean poll-502\?/);
  });
});

/** Streams zeros until a response arrives, and returns the response's status. */
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
