import { createHash } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { openObjectStore, type ObjectStore } from '../../src/store/s3-store.ts';
import type { StartedUpload } from '../../src/store/s3-object.ts';
import { account, kept, s3Server, type S3Server } from './s3-server.ts';

const url = 's3://bucket/clips/boat.mp4';
const path = '/bucket/clips/boat.mp4';
const content = Buffer.from('0123456789abcdef0123');
const clock: Clock = { now: () => Date.now(), monotonic: () => 0, sleep: () => Promise.resolve() };

interface Scene {
  store: S3Server;
  objects: ObjectStore;
  notes: string[];
  begun: StartedUpload[];
  put: (options?: { force?: boolean; earlier?: StartedUpload[] }) => Promise<void>;
}

// With 8 bytes per part, the file has three parts.
async function scene(
  partBytes = 8,
  env: Record<string, string> = { ...account, HOME: '/nowhere' },
): Promise<Scene> {
  const store = await s3Server();
  const file = join(mkdtempSync(join(tmpdir(), 'mgw-test-')), 'boat.mp4');
  writeFileSync(file, content);
  const [notes, begun]: [string[], StartedUpload[]] = [[], []];
  const deps = {
    clock,
    deadline: { remainingMs: () => Infinity },
    retries: 2,
    signal: new AbortController().signal,
    note: (text: string) => void notes.push(text),
    userAgent: 'test',
    allowHttp: false,
    secrets: [],
  };
  const objects = openObjectStore(store.url, env, deps, partBytes);
  onTestFinished(() => objects.close());
  const sha256 = createHash('sha256').update(content).digest('hex');
  const put: Scene['put'] = ({ force = false, earlier = [] } = {}) =>
    objects.put(
      url,
      { path: file, bytes: content.length, sha256, mime: 'video/mp4' },
      { force, earlierUploads: earlier, onStarted: (upload) => Promise.resolve(void begun.push(upload)) },
    );
  return { store, objects, notes, begun, put };
}

type Fault = S3Server['faults'][number];
const is = (request: IncomingMessage, method: string, part: string): boolean =>
  request.method === method && (request.url ?? '').includes(part);
const on =
  (method: string, part: string, answer: (response: ServerResponse) => void): Fault =>
  (request, response) => {
    if (!is(request, method, part)) return false;
    answer(response);
    return true;
  };
const status =
  (code: number, body = '', headers = {}) =>
  (response: ServerResponse): void =>
    void response.writeHead(code, headers).end(body);

describe('a file saved as an object', () => {
  test('is saved by the same process once the missing credentials exist', async () => {
    const env: Record<string, string> = { HOME: '/nowhere' };
    const { store, put } = await scene(8, env);
    await expect(put()).rejects.toThrow('no credentials');
    Object.assign(env, account);
    await put();
    expect(store.objects.get(path)).toEqual(content);
  });

  test('is uploaded in parts, leaves no unfinished upload, and is recognized by a rerun', async () => {
    const { store, begun, put } = await scene();
    await put();
    expect(store.objects.get(path)).toEqual(content);
    expect(store.uploads.size).toBe(0);
    expect(begun.map(({ id }) => id !== undefined)).toEqual([false, true]);
    const before = store.calls.length;
    await put();
    expect(store.calls.slice(before)).toEqual([`HEAD ${path} 200`]);
  });

  test('is uploaded in one request if it is small', async () => {
    const { store, put } = await scene(1024);
    await put();
    expect(store.calls).toEqual([`HEAD ${path} 404`, `PUT ${path} 200`]);
  });

  test.each([
    [
      'a 503 SlowDown for a part',
      on('PUT', 'partNumber=2', status(503, '<Error><Code>SlowDown</Code></Error>')),
    ],
    [
      'a connection reset during a part',
      on('PUT', 'partNumber=2', (response) => void response.socket?.destroy()),
    ],
    [
      'a wrong checksum for a part',
      on('PUT', 'partNumber=2', status(200, '', { etag: `"${'0'.repeat(32)}"` })),
    ],
    [
      'a 500 at the completion',
      on('POST', 'uploadId', status(500, '<Error><Code>InternalError</Code></Error>')),
    ],
    [
      'a 200 whose body is an error',
      on('POST', 'uploadId', status(200, '<Error><Code>InternalError</Code></Error>')),
    ],
  ])('is stored despite %s', async (_, fault) => {
    const { store, put } = await scene();
    store.faults.push(fault);
    await put();
    expect(store.faults).toEqual([]);
    expect(store.objects.get(path)).toEqual(content);
    expect(store.uploads.size).toBe(0);
  });

  test('is uploaded again if the store has saved different bytes', async () => {
    const { store, put } = await scene(1024);
    store.faults.push(
      on('PUT', path, (response) => {
        store.objects.set(path, Buffer.from('other'));
        response.writeHead(200, { etag: `"${'0'.repeat(32)}"` }).end();
      }),
    );
    await put();
    expect(store.objects.get(path)).toEqual(content);
  });

  test.each(['<html>Welcome</html>', ''])(
    'is not reported as saved, and can be uploaded again, if the response to the completion is a 200 with %j',
    async (body) => {
      const { store, put } = await scene();
      store.faults.push(on('POST', 'uploadId', status(200, body)));
      await expect(put()).rejects.toMatchObject({ code: 'store', exitCode: 6 });
      expect(store.objects.has(path)).toBe(false);
      await put();
      expect(store.objects.get(path)).toEqual(content);
    },
  );

  test('is reported as saved after a 200 without an ETag only if the store contains it', async () => {
    const { store, put } = await scene(1024);
    const welcome = on('PUT', path, status(200, '<html>Welcome</html>'));
    store.faults.push(welcome);
    await put();
    expect(store.objects.get(path)).toEqual(content);
    store.objects.clear();
    store.faults.push(welcome, welcome, welcome);
    await expect(put()).rejects.toMatchObject({
      message: expect.stringContaining(
        'accepted s3://bucket/clips/boat.mp4 3 times but did not store it',
      ) as string,
      exitCode: 6,
    });
    expect(store.objects.size).toBe(0);
  });

  test('is saved on a service that sends no ETags', async () => {
    const { store, put } = await scene(1024);
    store.faults.push((_, response) => {
      const writeHead = response.writeHead.bind(response) as (
        code: number,
        headers: object,
      ) => ServerResponse;
      const withoutEtag = (code: number, headers: object): ServerResponse =>
        writeHead(code, { ...headers, etag: '' });
      response.writeHead = withoutEtag as ServerResponse['writeHead'];
      return false;
    });
    await put();
    expect(store.calls).toEqual([`HEAD ${path} 404`, `PUT ${path} 200`, `HEAD ${path} 200`]);
  });

  test('is removed if the store repeatedly saves different bytes, or is replaced by the next run if the removal fails', async () => {
    for (const removed of [204, 403]) {
      const { store, put } = await scene(1024);
      const corrupt: Fault = (request, response) => {
        if (request.method === 'DELETE' && removed === 403) return response.writeHead(403).end();
        if (request.method !== 'PUT') return false;
        store.objects.set(path, Buffer.from('0123456789abcdef012X'));
        store.metadata.set(path, kept(request.headers));
        return response.writeHead(200, { etag: `"${'0'.repeat(32)}"` }).end();
      };
      store.faults.push(corrupt, corrupt, corrupt, ...(removed === 403 ? [corrupt] : []));
      await expect(put()).rejects.toMatchObject({ exitCode: 6 });
      expect([store.objects.has(path), store.faults]).toEqual([removed === 403, []]);
      await put();
      expect(store.objects.get(path)).toEqual(content);
    }
  });

  test('is uploaded again after a conflict with another request', async () => {
    for (const partBytes of [8, 1024]) {
      const { store, notes, put } = await scene(partBytes);
      const conflict = status(409, '<Error><Code>ConditionalRequestConflict</Code></Error>');
      store.faults.push(on(partBytes === 8 ? 'POST' : 'PUT', partBytes === 8 ? 'uploadId' : path, conflict));
      await put();
      expect(store.objects.get(path)).toEqual(content);
      expect(notes.join()).toContain('HTTP 409: ConditionalRequestConflict');
    }
  });

  test('is saved even if the response that completes its upload is lost', async () => {
    const { store, put } = await scene();
    store.faults.push((request, response) => {
      if (!is(request, 'POST', 'uploadId')) return false;
      response.end = () => response.destroy();
      store.faults.shift();
      return false;
    });
    await put();
    expect(store.objects.get(path)).toEqual(content);
  });

  test('replaces a different object only with force', async () => {
    for (const partBytes of [8, 1024]) {
      const { store, put } = await scene(partBytes);
      store.objects.set(path, Buffer.from('other'));
      await expect(put()).rejects.toMatchObject({ code: 'output_exists', charged: 'yes' });
      expect(store.objects.get(path)?.toString()).toBe('other');
      await put({ force: true });
      expect(store.objects.get(path)).toEqual(content);
      expect(store.uploads.size).toBe(0);
    }
  });

  test('does not replace an object that appears during the upload', async () => {
    for (const [partBytes, method] of [
      [8, 'POST'],
      [1024, 'PUT'],
    ] as const) {
      const { store, put } = await scene(partBytes);
      const last = partBytes === 8 ? 'uploadId' : path;
      store.faults.push((request) => {
        if (is(request, method, last)) store.objects.set(path, Buffer.from('other'));
        return false;
      });
      await expect(put()).rejects.toMatchObject({ code: 'output_exists' });
      expect(store.objects.get(path)?.toString()).toBe('other');
      expect(store.uploads.size).toBe(0);
    }
  });

  test('is saved after the unfinished uploads of an earlier run, but no others, are aborted', async () => {
    const { store, put } = await scene();
    const left = { path, headers: {}, parts: new Map<number, Buffer>() };
    store.uploads.set('own', left);
    store.uploads.set('lost', left);
    store.uploads.set('other', { ...left, path: `${path}.bak` });
    const since = new Date().toISOString();
    await put({ earlier: [{ id: 'own', since }, { since }] });
    expect([...store.uploads.keys()]).toEqual(['other']);
    expect(store.objects.get(path)).toEqual(content);
  });

  test('is saved without an unfinished upload if the response to the start of its upload is lost', async () => {
    const { store, put } = await scene();
    store.faults.push((request, response) => {
      if (!is(request, 'POST', '?uploads')) return false;
      response.end = () => response.destroy();
      store.faults.shift();
      return false;
    });
    await put();
    expect(store.faults).toEqual([]);
    expect([...store.uploads.keys()]).toEqual([]);
    expect(store.objects.get(path)).toEqual(content);
  });

  test('is refused before anything is paid for if its bucket does not exist', async () => {
    const { store, objects } = await scene();
    store.faults.push(
      on('HEAD', path, status(404)),
      on('GET', path, status(404, '<Error><Code>NoSuchBucket</Code></Error>')),
    );
    await expect(objects.checkFree(url, false)).rejects.toMatchObject({
      message: expect.stringContaining('NoSuchBucket') as string,
      charged: 'no',
      exitCode: 10,
    });
    await objects.checkFree(url, false);
    const before = store.calls.length;
    await objects.checkFree(url, false);
    expect(store.calls.slice(before)).toEqual([`HEAD ${path} 404`]);
  });

  test('is saved without aborting an upload that another program started earlier', async () => {
    const { store, put } = await scene();
    store.uploads.set('other', { path, headers: {}, parts: new Map() });
    await put({ earlier: [{ since: new Date(Date.now() + 3_600_000).toISOString() }] });
    expect([...store.uploads.keys()]).toEqual(['other']);
  });

  test('makes the command exit with 6 if the store fails repeatedly, and with 10 if the store refuses the file', async () => {
    for (const [code, exitCode] of [
      [503, 6],
      [403, 10],
    ] as const) {
      const { store, put } = await scene();
      store.faults.push(...Array.from({ length: 9 }, () => on('PUT', 'partNumber', status(code))));
      await expect(put()).rejects.toMatchObject({ code: 'store', exitCode });
      expect(store.uploads.size).toBe(0);
    }
  });

  test('is stored on a service without conditional writes, and a note is printed', async () => {
    const { store, notes, put } = await scene(1024);
    store.faults.push(on('PUT', path, status(501, '<Error><Code>NotImplemented</Code></Error>')));
    await put();
    expect(store.objects.get(path)).toEqual(content);
    expect(notes.join()).toMatch(/does not support conditional writes/);
  });
});

test('renewed credentials are used if the store refuses the expired ones', async () => {
  const file = join(mkdtempSync(join(tmpdir(), 'mgw-test-')), 'credentials');
  const write = (token: string): void =>
    writeFileSync(
      file,
      `[default]
aws_access_key_id = ${account.AWS_ACCESS_KEY_ID}
aws_secret_access_key = ${account.AWS_SECRET_ACCESS_KEY}
aws_session_token = ${token}
`,
    );
  write('old');
  const { store, objects } = await scene(8, { AWS_SHARED_CREDENTIALS_FILE: file, HOME: '/nowhere' });
  const refuseOld = ({ method, headers }: IncomingMessage, response: ServerResponse): unknown => {
    if (headers['x-amz-security-token'] !== 'old') return false;
    store.faults.push(refuseOld);
    return response.writeHead(400).end(method === 'HEAD' ? '' : '<Error><Code>ExpiredToken</Code></Error>');
  };
  store.faults.push(refuseOld);
  await expect(objects.checkFree(url, false)).rejects.toThrow('renew them');
  write('new');
  await objects.checkFree(url, false);
});
