import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { reachProblem } from '../../src/flows/open-stores.ts';
import type { User } from '../support/cli.ts';
import { hurried, runHereAs, userHere } from '../support/one-process.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

interface Scene {
  user: User;
  gateway: HttpServer;
  store: S3Server;
  /** Returns the bodies of the submissions. */
  sent: () => Record<string, unknown>[];
}

async function scene(extra: NodeJS.ProcessEnv = {}): Promise<Scene> {
  const store = await s3Server();
  const gateway: HttpServer = await httpServer((seen, response) => {
    if (seen.method === 'POST' && seen.headers['x-tc-action'] === undefined)
      sendJson(response, { task_id: gateway.create(), status: 'queued' });
    else if (seen.method === 'POST')
      sendJson(response, { Response: { TaskId: gateway.create(), RequestId: 'r' } });
    else
      sendJson(response, {
        data: [
          { id: 'vendor-h3-mini', protocol: 'c' },
          { id: 'Video-B', protocol: 'b', model_versions: ['2.0'] },
        ],
      });
  });
  const user = userHere(gateway.url, { ...account, ...extra });
  writeFileSync(join(user.cwd, 'first.png'), png);
  configureStore(user, store.url, 's3://bucket/inputs');
  const sent: Scene['sent'] = () =>
    gateway.requests
      .filter(({ method }) => method === 'POST')
      .map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  return { user, gateway, store, sent };
}

const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '5'];
const withImage = [...submit, '--image', 'first.png'];

describe('a local file as an asset', () => {
  test('is uploaded once under its content hash, and sent as a URL that anyone can read, even for another job', async () => {
    const { user, store, sent } = await scene();
    const first = await user.run([...withImage, '--key', 'boat', '-v', '--json']);
    expect(first.code, first.stderr).toBe(0);
    const again = await user.run([...withImage, '--key', 'boat', '--json']);
    expect(again.json.job.id).toBe(first.json.job.id);
    expect(sent()).toHaveLength(1);
    writeFileSync(join(user.cwd, 'copy.png'), png);
    expect((await user.run([...submit, '--image', 'copy.png', '--key', 'two'])).code).toBe(0);
    expect(sent()).toHaveLength(2);
    const [path = ''] = [...store.objects.keys()];
    expect(path).toMatch(/^\/bucket\/inputs\/[\da-f]{64}\.png$/);
    expect(store.calls.filter((call) => call.startsWith('PUT'))).toEqual([`PUT ${path} 200`]);
    expect(await store.get(String(sent()[0]?.['image']))).toEqual(png);
    expect(first.json.job['request']).toMatchObject({
      image: `sha256:${path.slice('/bucket/inputs/'.length)}`,
    });
    // Neither the records nor the output contain a signature or credentials.
    const kept = readdirSync(user.cwd, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'));
    for (const text of [...kept, first.stdout, first.stderr])
      expect(text).not.toMatch(/X-Amz-Signature=[\da-f]{64}|store-secret-4711/);
  });

  test.each([
    ['c', [...withImage]],
    ['b', ['video', 'b', 'submit', 'a boat', '-m', 'Video-B', '-d', '5', '--first-frame', 'first.png']],
  ])(
    'keeps its job and its upload when the credentials change, but leads to exit 2 when its bytes change (Protocol %s)',
    async (_, args) => {
      const { user, store, sent } = await scene({ AWS_SESSION_TOKEN: 'first-token' });
      const later = hurried();
      const hourLater = { ...later, now: () => later.now() + 3_600_000 };
      const first = await user.run([...args, '--key', 'boat', '--json']);
      expect(first.code, first.stderr).toBe(0);
      user.env['AWS_SESSION_TOKEN'] = 'second-token';
      const again = await runHereAs(user, [...args, '--key', 'boat', '--json'], '', hourLater);
      expect([again.code, again.json.job.id]).toEqual([0, first.json.job.id]);
      await runHereAs(user, [...args, '--key', 'other'], '', hourLater);
      expect(store.calls.filter((call) => call.startsWith('PUT'))).toHaveLength(1);
      const urls = sent().map((body) => /http[^"]+X-Amz[^"]+/.exec(JSON.stringify(body))?.[0] ?? '');
      const tokens = urls.map((url) => new URL(url).searchParams.get('X-Amz-Security-Token'));
      expect(tokens).toEqual(['first-token', 'second-token']);
      writeFileSync(join(user.cwd, 'first.png'), Buffer.concat([png, Buffer.from('x')]));
      const other = await user.run([...args, '--key', 'boat', '--json']);
      expect(other.json).toMatchObject({ exit_code: 2, error: { code: 'conflict', charged: 'no' } });
      expect([sent().length, store.objects.size]).toEqual([2, 1]);
    },
  );

  test('is accepted by asset flags of Protocols B and C', async () => {
    const { user, store, sent } = await scene();
    for (const [name, flag] of [
      ['vendor-h3-mini', '--reference-image'],
      ['vendor-h3-mini', '--images'],
    ] as const)
      expect(
        (await user.run([...submit, '-m', name, flag, 'first.png'].filter((_, i) => i !== 4 && i !== 5)))
          .code,
      ).toBe(0);
    const b = ['video', 'b', 'submit', 'a boat', '-m', 'Video-B', '-d', '5', '--first-frame', 'first.png'];
    const ran = await user.run(b);
    expect(ran.code, ran.stderr).toBe(0);
    const [c1, c2, cloud] = sent();
    const urls = [c1?.['reference_image_urls'], c2?.['images'], cloud?.['FileInfos']].map(
      (list) => (list as (string | { Url: string })[])[0],
    );
    for (const url of urls)
      expect(await store.get(typeof url === 'string' ? url : (url?.Url ?? ''))).toEqual(png);
  });
});

test('a URL signed with temporary credentials is valid until they end, or for an hour if their end is unknown', async () => {
  const { user, sent } = await scene({ AWS_SESSION_TOKEN: 'token-of-the-store' });
  const cases = [
    ['', 3600, /valid for at most 60 minutes/],
    [3600, 3600, /Accepted/],
    [86_400, 86_400, /Accepted/],
  ] as const;
  for (const [left, expires, words] of cases) {
    user.env['AWS_CREDENTIAL_EXPIRATION'] =
      left === '' ? '' : new Date(Date.now() + left * 1000 + 900).toISOString();
    const ran = await user.run([...withImage, '--key', `left-${left}`, '-v']);
    expect([ran.code, ran.stderr]).toEqual([0, expect.stringMatching(words)]);
    const { searchParams } = new URL(String(sent().at(-1)?.['image']));
    expect(searchParams.get('X-Amz-Security-Token')).toBe('token-of-the-store');
    expect(Math.abs(Number(searchParams.get('X-Amz-Expires')) - expires)).toBeLessThan(60);
    expect(ran.stderr + ran.stdout).not.toContain('token-of-the-store');
  }
});

test('store credentials that have expired, or expire within a minute, make the command exit with 10, and nothing is sent', async () => {
  const { user, sent } = await scene({ AWS_SESSION_TOKEN: 'token' });
  for (const [left, words] of [
    [-600, 'have expired'],
    [30, 'expire within a minute'],
  ] as const) {
    user.env['AWS_CREDENTIAL_EXPIRATION'] = new Date(Date.now() + left * 1000).toISOString();
    const failed = await user.run([...withImage, '--json']);
    expect(failed.json).toMatchObject({
      exit_code: 10,
      error: {
        code: 'store',
        charged: 'no',
        message: `The credentials for the store s3://bucket ${words}: renew them.`,
      },
    });
  }
  expect(sent()).toHaveLength(0);
});

describe('a failing store', () => {
  test('is retried if the failure is temporary, and the gateway receives nothing until the file is stored', async () => {
    const { user, store, sent } = await scene();
    store.faults.push((_, response) => response.writeHead(503).end('<Error><Code>SlowDown</Code></Error>'));
    const ran = await user.run(withImage);
    expect(ran.code, ran.stderr).toBe(0);
    expect(sent()).toHaveLength(1);
  });

  test('makes the command exit with 6 if the failure persists, and the same command works later', async () => {
    const { user, store, sent } = await scene();
    store.faults.push((_, response) => response.writeHead(503).end());
    const failed = await user.run([...withImage, '--retries', '0', '--json']);
    expect(failed.json).toMatchObject({
      exit_code: 6,
      error: { code: 'store', charged: 'no', retry: 'safe' },
    });
    expect(sent()).toHaveLength(0);
    expect((await user.run(withImage)).code).toBe(0);
    expect(sent()).toHaveLength(1);
  });

  test('makes the command exit with 6, and the object is removed, if the store saves different bytes', async () => {
    const { user, store, sent } = await scene();
    store.faults.push((request, response) => {
      if (request.method !== 'PUT') return false;
      return response.writeHead(200, { etag: `"${'0'.repeat(32)}"` }).end();
    });
    store.faults.push(...Array.from({ length: 2 }, () => store.faults[0] ?? (() => false)));
    const failed = await user.run([...withImage, '--json']);
    expect(failed.json).toMatchObject({ exit_code: 6, error: { code: 'store', charged: 'no' } });
    expect(store.calls.at(-1)).toMatch(/^DELETE /);
    expect(sent()).toHaveLength(0);
    expect((await user.run(withImage)).code).toBe(0);
  });

  test('receives the request again if a proxy answers an upload or a lookup with a web page', async () => {
    const { user, store, sent } = await scene();
    const welcome = (_: unknown, response: ServerResponse): unknown =>
      response.writeHead(200, { 'content-type': 'text/html' }).end('<html>Welcome</html>');
    store.faults.push(welcome, welcome);
    const ran = await user.run(withImage);
    expect(ran.code, ran.stderr).toBe(0);
    expect([...store.objects.values()]).toEqual([png]);
    expect(await store.get(String(sent()[0]?.['image']))).toEqual(png);
  });

  test("receives the file again if it has saved different bytes under the file's name", async () => {
    const { user, store } = await scene();
    await user.run(withImage);
    const [path = ''] = store.objects.keys();
    store.objects.set(path, Buffer.alloc(png.length));
    expect((await user.run([...withImage, '--key', 'another'])).code).toBe(0);
    expect(store.objects.get(path)).toEqual(png);
  });

  test('makes the command exit with 6 if an upload fails, but keeps an identical file that another run has just stored', async () => {
    const { user, store } = await scene();
    store.faults.push(({ method, url = '' }, response) => {
      if (method !== 'PUT') return false;
      store.objects.set(new URL(url, store.url).pathname, png);
      return response.destroy();
    });
    const failed = await user.run([...withImage, '--retries', '0', '--json']);
    expect(failed.json).toMatchObject({ exit_code: 6, error: { code: 'store', charged: 'no' } });
    expect([...store.objects.values()]).toEqual([png]);
  });

  test('makes the command exit with 10, and the error contains the reason, if it refuses the request', async () => {
    const { user, store, sent } = await scene();
    const clockOff = new Date(Date.now() + 7_200_000).toUTCString();
    const elsewhere = /in the region eu-west-1, not in us-east-1/;
    const refusals: [status: number, headers: object, body: string, message: RegExp][] = [
      [400, { 'x-amz-bucket-region': 'eu-west-1' }, '<Code>AuthorizationHeaderMalformed</Code>', elsewhere],
      [301, {}, '<Code>PermanentRedirect</Code><Region>eu-west-1</Region>', elsewhere],
      [307, { location: 'https://other.example/bucket' }, '', /served by other\.example\.$/],
      [403, {}, '<Code>SignatureDoesNotMatch</Code>', /SignatureDoesNotMatch \(HTTP 403\)\.$/],
      [403, {}, '<Code>ExpiredToken</Code>', /ExpiredToken.*renew them\.$/],
      [403, {}, '<Code>RequestTimeTooSkewed</Code>', /RequestTimeTooSkewed.*set the clock\.$/],
      [403, { date: clockOff }, '', /by 120 minutes: set the clock\.$/],
    ];
    for (const [status, headers, body, message] of refusals) {
      const refuse = ({ method }: IncomingMessage, response: ServerResponse): unknown => {
        store.faults.unshift(refuse);
        return response
          .writeHead(status, { date: new Date().toUTCString(), ...headers })
          .end(method === 'HEAD' ? '' : `<Error>${body}</Error>`);
      };
      store.faults.splice(0, Infinity, refuse);
      const failed = await user.run([...withImage, '--json']);
      expect(failed.json).toMatchObject({ exit_code: 10, error: { code: 'store', charged: 'no' } });
      expect(failed.json.error.message).toMatch(message);
      if (message === elsewhere)
        expect(failed.json.error).toMatchObject({ next: ['export', 'AWS_REGION=eu-west-1'] });
    }
    expect(sent()).toHaveLength(0);
  });
});

test('after Ctrl-C during an upload, mgw sends nothing to the gateway and exits with 130, and the same command then works', async () => {
  const { user, store, sent } = await scene();
  const requested = new Promise<void>((resolve) => store.faults.push(() => resolve()));
  const running = user.start([...withImage, '--json']);
  await requested;
  running.child.kill('SIGINT');
  expect((await running.result).json).toMatchObject({ exit_code: 130, error: { charged: 'no' } });
  expect(sent()).toHaveLength(0);
  expect((await user.run(withImage)).code).toBe(0);
  expect(sent()).toHaveLength(1);
});

test('doctor checks the store without uploading anything', async () => {
  const { user, store } = await scene();
  const rowOf = async (): Promise<string | undefined> =>
    (await user.run(['doctor'])).stdout.split('\n').find((row) => row.startsWith('store '));
  expect(await rowOf()).toMatch(/^store +ok +s3:\/\/bucket\/inputs at 127\.0\.0\.1:\d+ responds/);
  store.faults.push((_, response) => response.writeHead(403).end());
  expect(await rowOf()).toMatch(/^store +fail/);
  expect(store.objects.size).toBe(0);
});

test.each([
  ['127.0.0.1', 'gateway.example.com', /probably cannot reach 127\.0\.0\.1/],
  ['minio.lan', 'gateway.example.com', /probably cannot reach minio\.lan/],
  ['storage.googleapis.com', 'gateway.example.com', /mainland China/],
  ['minio.lan', '10.0.0.1', undefined],
  ['s3.example.com', 'gateway.example.com', undefined],
  ['127.0.0.1', 'localhost', undefined],
])('doctor reports, for a store at %s and a gateway at %s: %s', (store, gateway, problem) => {
  if (problem === undefined) expect(reachProblem(store, gateway)).toBeUndefined();
  else expect(reachProblem(store, gateway)).toMatch(problem);
});

test('the error for a local file without a store explains how to set a store, and nothing is sent', async () => {
  const { user, sent } = await scene();
  await user.run(['config', 'unset', 'store']);
  const failed = await user.run([...withImage, '--json']);
  expect(failed.json).toMatchObject({ exit_code: 2, error: { code: 'usage', charged: 'no' } });
  expect(failed.json.error.message).toContain('mgw config set store s3://');
  expect(sent()).toHaveLength(0);
});

test('store.command receives a file and its name, but never the API key, and mgw sends the URL that it prints', async () => {
  const { user, sent } = await scene();
  await user.run(['config', 'unset', 'store']);
  const script = `const c=[];process.stdin.on('data',d=>c.push(d)).on('end',()=>{require('fs').writeFileSync('seen.json',JSON.stringify({env:process.env,bytes:Buffer.concat(c).length}));console.log('https://files.example.com/'+process.env.MGW_OBJECT_NAME)})`;
  await user.run(['config', 'set', 'store.command', '--', process.execPath, '-e', script]);
  const ran = await user.start(withImage).result;
  expect(ran.code, ran.stderr).toBe(0);
  expect(sent()[0]?.['image']).toMatch(/^https:\/\/files\.example\.com\/[\da-f]{64}\.png$/);
  const seen = readFileSync(join(user.cwd, 'seen.json'), 'utf8');
  expect(JSON.parse(seen)).toMatchObject({ bytes: png.length });
  expect(seen).not.toContain(user.env['MGW_API_KEY']);
});
