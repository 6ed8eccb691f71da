import { describe, expect, it } from 'vitest';
import { type Deadline, deadlineIn, systemClock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { checkAssetUrls, checkUploads } from '../../src/flows/check-assets.ts';
import type { Settings } from '../../src/config/resolve.ts';
import type { Session } from '../../src/flows/session.ts';
import type { JsonObject } from '../../src/json.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { b } from '../../src/protocols/b/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Store } from '../../src/store/store.ts';
import { closedPort, httpServer, type Answer } from '../support/servers.ts';

const megabyte = 2 ** 20;
const soft = new AbortController();

function sessionOf(
  signal = soft.signal,
  requestTimeoutMs?: number,
  deadline: Deadline = { remainingMs: () => Infinity },
): Session {
  const settings = { requestTimeoutMs: { value: requestTimeoutMs } } as Settings;
  const session: Partial<Session> = {
    signals: () => ({ soft: signal, hard: signal }),
    settings: () => Promise.resolve(settings),
    deadline: () => Promise.resolve(deadline),
  };
  return session as Session;
}

const nameOf = (ending: string): string => `sha256:${'0'.repeat(64)}.${ending}`;

async function messageOf(checking: Promise<void>): Promise<string | undefined> {
  const error: unknown = await checking.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) return undefined;
  expect(error).toMatchObject({ code: 'usage' });
  return (error as MgwError).message;
}

describe('an object in the store', () => {
  const check = (
    body: JsonObject,
    mime: string,
    bytes: number,
    protocol = c,
  ): Promise<string | undefined> => {
    const store = { describe: () => Promise.resolve({ mime, bytes }) } as Partial<Store> as Store;
    const values = JSON.stringify(body).match(/sha256:[\da-f]{64}\.\w+/g) ?? [];
    const urls = new Map(values.map((value) => [value, 'https://store.example/1']));
    return messageOf(checkUploads(sessionOf(), protocol, body, store, urls));
  };
  const image = { image: nameOf('png') };

  it.each<[string, JsonObject, string, number, string | undefined]>([
    ['of the expected type', image, 'image/png', 1, undefined],
    ['of a type with parameters, in capitals', image, 'IMAGE/PNG; charset=x', 1, undefined],
    ['of the largest size', image, 'image/png', 20 * megabyte, undefined],
    ['that is too large', image, 'image/png', 20 * megabyte + 1, '20.0 MiB; the limit is 20 MiB'],
    ['that is empty', image, 'image/png', 0, 'it is empty'],
    ['of another type', image, 'video/mp4', 1, 'its type is video/mp4'],
    ['of a type with the same beginning', image, 'images/png', 1, 'its type is images/png'],
    ['without a type', image, '', 1, undefined],
    ['of the type application/octet-stream', image, 'application/octet-stream', 1, undefined],
    ['of the type binary/octet-stream', image, 'binary/octet-stream; a=b', 1, undefined],
    ['of a type like application/octet-stream', image, 'application/octet-streams', 1, 'its type is'],
    [
      'that is a large video',
      { reference_video_urls: [nameOf('mp4')] },
      'video/mp4',
      900 * megabyte,
      undefined,
    ],
    [
      'that is audio of the largest size',
      { reference_audio_urls: [nameOf('mp3')] },
      'audio/mpeg',
      50 * megabyte,
      undefined,
    ],
    [
      'that is audio above the size limit',
      { reference_audio_urls: [nameOf('mp3')] },
      'audio/mpeg',
      50 * megabyte + 1,
      'the limit is 50 MiB',
    ],
  ])('is checked by its type and size (an object %s)', async (_, body, mime, bytes, expected) => {
    const message = await check(body, mime, bytes);
    if (expected === undefined) expect(message).toBeUndefined();
    else expect(message).toContain(expected);
  });

  it.each([
    ['png', 'image/png'],
    ['mp3', 'audio/mpeg'],
    ['WAV', 'audio/wav'],
    ['m4a', 'audio/mp4'],
    ['aac', 'audio/aac'],
    ['mp4', 'video/mp4'],
    ['mov', 'video/quicktime'],
    ['webm', 'video/webm'],
  ])('is checked for Protocol B as the type that its extension implies: .%s is %s', async (ending, mime) => {
    const body = { FileInfos: [{ Type: 'Url', Url: nameOf(ending) }] };
    const names = new Map([[nameOf(ending), '']]);
    const calls: string[] = [];
    const store = (type: string): Store =>
      ({
        describe: (name: string) => Promise.resolve({ mime: type, bytes: calls.push(name) }),
      }) as Partial<Store> as Store;
    expect(await messageOf(checkUploads(sessionOf(), b, body, store(mime), names))).toBeUndefined();
    const [kind = ''] = mime.split('/');
    expect(await messageOf(checkUploads(sessionOf(), b, body, store('text/html'), names))).toMatch(
      new RegExp(`^${kind} sha256`),
    );
    expect(calls).toEqual([nameOf(ending), nameOf(ending)]);
  });

  it('is reported with the flag and the path of the file', async () => {
    const store = { describe: () => Promise.resolve({ mime: 'image/png', bytes: 0 }) } as Partial<Store>;
    const urls = new Map([[nameOf('png'), '']]);
    const labels = new Map([[nameOf('png'), '--image boat.png']]);
    const checking = checkUploads(sessionOf(), c, image, store as Store, urls, labels);
    expect(await messageOf(checking)).toBe('--image boat.png: it is empty.');
  });

  it('is not checked if the body does not use it as an asset, or if mgw did not upload it', async () => {
    const store = { describe: () => Promise.reject(new Error('asked')) } as Partial<Store> as Store;
    const names = new Map([[nameOf('png'), '']]);
    await checkUploads(sessionOf(), c, { prompt: nameOf('png'), image: nameOf('jpg') }, store, names);
  });

  it('is not reported as invalid if the store does not respond or the command is interrupted', async () => {
    const failing = (error: MgwError): Promise<void> => {
      const store = { describe: () => Promise.reject(error) } as Partial<Store> as Store;
      return checkUploads(sessionOf(), c, image, store, new Map([[nameOf('png'), '']]));
    };
    const lost = new MgwError('store', 'no answer', { exit: 'unavailable' });
    await expect(failing(lost)).rejects.toBe(lost);
    const stopped = new MgwError('pending', 'stopped', { exit: 'interrupted' });
    await expect(failing(stopped)).rejects.toBe(stopped);
    await expect(failing(new MgwError('not_found', 'gone'))).rejects.toMatchObject({ code: 'usage' });
  });

  it('is checked by its URL if the store is a program, or if the object is a frame of a video', async () => {
    const server = await httpServer((_, response) =>
      response.writeHead(200, { 'content-type': 'image/png' }).end(),
    );
    const frame = `${nameOf('mp4')}#last`;
    const urls = new Map([
      [frame, `${server.url}/frame.png`],
      [nameOf('png'), `${server.url}/1.png`],
    ]);
    const known = { describe: () => Promise.reject(new Error('asked')) } as Partial<Store> as Store;
    await checkUploads(sessionOf(), c, { image: frame }, known, urls);
    await checkUploads(sessionOf(), c, image, {} as Store, urls);
    expect(server.requests.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'HEAD /frame.png',
      'HEAD /1.png',
    ]);
  });
});

describe('a URL', () => {
  const png = { 'content-type': 'image/png' };
  const only =
    (status: number, headers: Record<string, string> = png): Answer =>
    ({ method }, response) =>
      method === 'HEAD' ? response.writeHead(405).end() : response.writeHead(status, headers).end('x');

  it.each<[string, Answer, string | undefined, string[]]>([
    ['to HEAD', (_, response) => response.writeHead(200, png).end(), undefined, ['HEAD']],
    [
      'to HEAD without a length',
      (_, response) => response.writeHead(200, { ...png, 'transfer-encoding': 'chunked' }).end(),
      undefined,
      ['HEAD'],
    ],
    [
      'to HEAD with a length',
      (_, response) => response.writeHead(200, { ...png, 'content-length': '0' }).end(),
      'it is empty',
      ['HEAD'],
    ],
    ['with a range', only(206, { ...png, 'content-range': 'bytes 0-0/0' }), 'it is empty', ['HEAD', 'GET']],
    [
      'with a range of unknown length',
      only(206, { ...png, 'content-range': 'bytes 0-0/*' }),
      undefined,
      ['HEAD', 'GET'],
    ],
    ['with a 206 without a range', only(206), undefined, ['HEAD', 'GET']],
    ['with the whole file', only(200, { ...png, 'content-length': '1' }), undefined, ['HEAD', 'GET']],
    ['with a page', only(200, { 'content-type': 'text/html' }), 'its type is text/html', ['HEAD', 'GET']],
    ['with a refusal', only(403), 'it cannot be fetched: HTTP 403', ['HEAD', 'GET']],
    [
      'with a redirect that mgw does not follow',
      only(302, { location: 'http://user:password@127.0.0.1/1.png' }),
      'it cannot be fetched from here: mgw does not fetch the address',
      ['HEAD', 'GET'],
    ],
    [
      'with a closed connection',
      (_, response) => response.destroy(),
      'it cannot be fetched from here: the connection to 127.0.0.1',
      ['HEAD', 'GET'],
    ],
  ])('is checked if its server responds %s', async (_, answer, expected, methods) => {
    const server = await httpServer(answer);
    const message = await messageOf(
      checkAssetUrls(sessionOf(), c, { image: `${server.url}/1.png?signature=x` }),
    );
    if (expected === undefined) expect(message).toBeUndefined();
    else expect(message).toContain(expected);
    expect(message ?? '').not.toContain('signature');
    expect(server.requests.map(({ method }) => method)).toEqual(methods);
    expect(server.requests.map(({ path }) => path)).toEqual(methods.map(() => '/1.png?signature=x'));
    for (const { headers } of server.requests) expect(headers.authorization).toBeUndefined();
    if (methods.length > 1) expect(server.requests[1]?.headers.range).toBe('bytes=0-0');
  });

  it('is not requested if the URL belongs to an object in the store, or if the body contains the bytes', async () => {
    const server = await httpServer();
    await checkAssetUrls(sessionOf(), c, { image: nameOf('png') });
    const instances = [{ image: { bytesBase64Encoded: `${server.url}/1.png` } }];
    await checkAssetUrls(sessionOf(), a, { instances });
    expect(server.requests).toEqual([]);
  });

  it('is reported with the reason if its server cannot be reached', async () => {
    const host = `127.0.0.1:${await closedPort()}`;
    const message = await messageOf(checkAssetUrls(sessionOf(), c, { image: `http://${host}/1.png` }));
    expect(message).toBe(
      `image http://${host}/1.png: it cannot be fetched from here: cannot reach ${host}: connect ECONNREFUSED ${host}.`,
    );
  });

  it('is requested within the timeout of one request', async () => {
    const server = await httpServer(() => undefined);
    const checking = checkAssetUrls(sessionOf(soft.signal, 20), c, { image: `${server.url}/1.png` });
    expect(await messageOf(checking)).toContain('it cannot be fetched from here: no response within 0.02 s.');
  });

  it('is requested within the deadline of the command', async () => {
    const server = await httpServer(() => undefined);
    const session = sessionOf(soft.signal, undefined, deadlineIn(20, systemClock));
    const checking = checkAssetUrls(session, c, { image: `${server.url}/1.png` });
    await expect(checking).rejects.toMatchObject({ code: 'unreachable', charged: 'no', retry: 'safe' });
  });

  it('is not requested after an interruption', async () => {
    const interruption = new AbortController();
    const stopped = new MgwError('pending', 'stopped', { exit: 'interrupted' });
    const server = await httpServer((_, response) => {
      interruption.abort(stopped);
      response.destroy();
    });
    const checking = checkAssetUrls(sessionOf(interruption.signal), c, { image: `${server.url}/1.png` });
    await expect(checking).rejects.toBe(stopped);
    expect(server.requests).toHaveLength(1);
  });
});
