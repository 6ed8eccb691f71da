import { readdir, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { createClient } from '../../src/http/client.ts';
import type { DownloadProgress } from '../../src/http/download.ts';
import { selfSigned } from '../support/certificates.ts';
import { claimantOf, expectWhole, file, gatewayAt, inTurn, useDownloads } from '../support/downloads.ts';
import { boxEnds, film } from '../support/film.ts';
import { head, say, type Answer } from '../support/raw-server.ts';
import { TestClock } from '../support/test-clock.ts';

const content = film(200_000);
const etag = '"one"';
const corrupt = { code: 'result_corrupt', exitCode: 9, charged: 'yes' };
const ctx = useDownloads();

function saying(
  status: string,
  headers: Record<string, string | number>,
  body: string | Buffer = '',
): Answer {
  return (_, socket) => say(socket, status, headers, body);
}

describe('a download', () => {
  it("returns the file's path, size, hash and type", async () => {
    const server = await ctx.start(file({ content, etag }));
    const progress: DownloadProgress[] = [];
    const outcome = await ctx.fetch(server.url(), { onProgress: (now) => progress.push(now) });
    await expectWhole(outcome, content);
    expect(outcome).toMatchObject({ mime: 'video/mp4', file: { path: ctx.part } });
    expect(progress.at(-1)).toMatchObject({ bytes: content.length, total: content.length });
  });

  it('requests the identity encoding, and identifies only the client', async () => {
    const server = await ctx.start(file({ content }));
    await ctx.fetch(server.url('/a?sign=1'));
    const headers = {
      host: `127.0.0.1:${server.port}`,
      accept: '*/*',
      'accept-encoding': 'identity',
      'user-agent': 'mgw/test',
      connection: 'keep-alive',
    };
    expect(server.requests).toEqual([{ method: 'GET', path: '/a?sign=1', headers }]);
  });

  it('accepts a body of unknown length', async () => {
    const server = await ctx.start(saying('200 OK', {}, content));
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it.each([
    ['WebM', Buffer.from('1a45dfa39f4286810142f7810142f2810442f381', 'hex'), 'video/webm', 'video/webm'],
    ['bytes of an unknown kind', Buffer.alloc(3, 0xfe), 'application/octet-stream', undefined],
    ['an MP4 declared as JSON', content, 'application/json', 'video/mp4'],
    [
      'binary data declared as plain text',
      Buffer.from('\x1aE\xdf\xa3\x01\x02', 'latin1'),
      'text/plain',
      undefined,
    ],
  ])('accepts %s', async (_, bytes, type, mime) => {
    const server = await ctx.start(file({ content: bytes, type }));
    const outcome = await ctx.fetch(server.url());
    await expectWhole(outcome, bytes);
    expect(outcome).toHaveProperty('mime', mime);
  });
});

describe("downloads from the gateway's origin", () => {
  async function fetchedTwice(answer: Answer): Promise<number> {
    const server = await ctx.start(answer);
    const client = createClient({ baseUrl: new URL(server.url('')), key: '', userAgent: 'mgw/test' });
    const { baseUrl, downloadConnections } = client;
    for (let times = 0; times < 2; times += 1) {
      const gateway = { ...gatewayAt(), baseUrl, downloadConnections };
      await expectWhole(await ctx.fetch(server.url(), { gateway, retries: 0 }), content);
      await rm(ctx.part);
    }
    client.close();
    return server.connections;
  }

  const whole = Buffer.concat([Buffer.from(head('200 OK', { 'content-length': content.length })), content]);

  it('share one connection if they run one after another', async () => {
    expect(await fetchedTwice((_, socket) => socket.write(whole))).toBe(1);
  });

  it('use a second connection if the first connection breaks before a response', async () => {
    const used = new Set<Socket>();
    const once: Answer = (_, socket) => {
      if (used.has(socket)) return void socket.destroy();
      used.add(socket);
      socket.write(whole);
    };
    expect(await fetchedTwice(once)).toBe(2);
  });

  it('are requested again if more bytes arrive than the Content-Length allows', async () => {
    const server = await ctx.start(
      inTurn(saying('200 OK', { 'content-length': 100 }, Buffer.alloc(200, 0xfe)), file({ content })),
    );
    const client = createClient({ baseUrl: new URL(server.url('')), key: '', userAgent: 'mgw/test' });
    const gateway = {
      ...gatewayAt(),
      baseUrl: client.baseUrl,
      downloadConnections: client.downloadConnections,
    };
    await expectWhole(await ctx.fetch(server.url(), { gateway }), content);
    expect(server.requests).toHaveLength(2);
    client.close();
  });
});

describe('a file with the wrong length', () => {
  it.each([
    [
      'shorter than its Content-Length',
      saying('200 OK', { 'content-length': content.length + 10 }, content),
      5,
    ],
    [
      'longer than its Content-Length',
      saying('200 OK', { 'content-length': content.length - 10 }, content),
      5,
    ],
    [
      'longer than its Content-Length, and not an MP4',
      saying('200 OK', { 'content-length': 100 }, Buffer.alloc(200, 0xfe)),
      5,
    ],
    ['with Content-Length 0', saying('200 OK', { 'content-length': 0 }), 4],
    ['without content or Content-Length', saying('200 OK', {}), 4],
    [
      'with two different lengths',
      saying('200 OK', { 'content-length': 10, 'Content-Length': 20 }, content),
      4,
    ],
  ])('is requested again, then causes an error (%s)', async (what, answer, tries) => {
    const server = await ctx.start(answer);
    const exit = what === 'with two different lengths' ? { code: 'unreachable', exitCode: 6 } : corrupt;
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ ...exit, retry: 'resume' });
    expect(server.requests).toHaveLength(tries);
  });

  it.each([
    ['inside a box', 100_000],
    ['inside the first box', 15],
    ['between two boxes', boxEnds[0] ?? 0],
  ])('is fetched again if it ends early %s and has no Content-Length', async (_, end) => {
    const cut = saying('200 OK', {}, content.subarray(0, end));
    const server = await ctx.start(inTurn(cut, saying('200 OK', {}, content)));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.requests).toHaveLength(2);
  });

  it('is fetched twice, then makes the download fail with exit code 9 and leaves no files, if its boxes do not match its length', async () => {
    const server = await ctx.start(file({ content: Buffer.concat([content, Buffer.from('more')]), etag }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject(corrupt);
    expect(server.header('range')).toEqual(['', '']);
    expect(await readdir(ctx.folder)).toEqual([]);
  });

  it('is fetched twice, then makes the download fail with exit code 9, if it contains only the brand of an MP4', async () => {
    const server = await ctx.start(file({ content: content.subarray(0, boxEnds[0]), etag }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject(corrupt);
    expect(server.requests).toHaveLength(2);
  });
});

describe('text sent instead of the file', () => {
  const json = '{"error":{"message":"the task is not completed"}}';

  it.each([
    ['JSON', 'application/json', json],
    ['JSON declared as a video', 'video/mp4', ` \n${json}`],
    ['a JSON array', 'application/octet-stream', '[{"a":1}]'],
    ['HTML declared as a video', 'video/mp4', '\ufeff<!DOCTYPE html><p>Sorry'],
    ['XML declared as binary data', 'application/octet-stream', '<?xml version="1.0"?><Error/>'],
    ['plain text', 'text/plain', 'link expired'],
  ])(
    'makes the download fail with exit code 9 after one request, and leaves no files: %s',
    async (_, type, body) => {
      const server = await ctx.start(saying('200 OK', { 'content-type': type }, body));
      await expect(ctx.fetch(server.url())).rejects.toMatchObject(corrupt);
      expect(server.requests).toHaveLength(1);
      expect(await readdir(ctx.folder)).toEqual([]);
    },
  );

  it("is printed as the gateway's message, without control characters", async () => {
    const words = JSON.stringify({ error: { message: 'gone \u001b[2J away' } });
    const server = await ctx.start(saying('200 OK', { 'content-type': 'application/json' }, words));
    await expect(ctx.fetch(server.url())).rejects.toThrow('gone \\u{1b}[2J away');
  });

  it.each([
    ['200 OK', 'application/json'],
    ['400 Bad Request', 'text/plain'],
    ['503 Service Unavailable', 'application/json'],
  ])('may mean that the file is not ready: %s, %s', async (status, type) => {
    const server = await ctx.start(saying(status, { 'content-type': type }, json));
    const notReady = ({ text }: { text: string }): boolean => text.includes('not completed');
    expect(await ctx.fetch(server.url(), { notReady })).toMatchObject({
      kind: 'not-ready',
      failure: { message: expect.stringContaining('not completed') as string },
    });
    expect(server.requests).toHaveLength(1);
  });

  it('is read even if it is compressed', async () => {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    const server = await ctx.start(saying('200 OK', headers, gzipSync(json)));
    const notReady = ({ text }: { text: string }): boolean => text === json;
    expect(await ctx.fetch(server.url(), { notReady })).toMatchObject({ kind: 'not-ready' });
  });

  it.each([
    ['endless JSON', { 'content-type': 'application/json' }, Buffer.from('{"a":"'.padEnd(1 << 16, 'x'))],
    [
      'an endless gzip bomb',
      { 'content-type': 'application/json', 'content-encoding': 'gzip' },
      gzipSync(Buffer.alloc(1 << 23)),
    ],
  ])('is read only up to the limit: %s', async (_, headers, block) => {
    let sent = 0;
    const server = await ctx.start((_asked, socket) => {
      socket.write(head('200 OK', headers));
      const more = (): void => {
        sent += block.length;
        if (socket.writable) socket.write(block, more);
      };
      more();
    });
    const seen: number[] = [];
    const notReady = ({ text, complete }: { text: string; complete: boolean }): boolean => {
      seen.push(text.length);
      return complete;
    };
    await expect(ctx.fetch(server.url(), { notReady })).rejects.toMatchObject(corrupt);
    expect(seen).toEqual([64 * 1024]);
    expect(sent).toBeLessThan(64 * 1024 * 1024);
  });

  it.each(['binary', 'aws-chunked', 'identity'])(
    'is saved if it is a plain file with the encoding %s',
    async (coding) => {
      const headers = { 'content-type': 'video/mp4', 'content-encoding': coding };
      const server = await ctx.start(saying('200 OK', headers, content));
      await expectWhole(await ctx.fetch(server.url()), content);
    },
  );

  it.each(['gzip', 'aws-chunked, gzip'])(
    'is not decompressed, and makes the download fail with exit code 9, if it is %s-encoded',
    async (coding) => {
      const server = await ctx.start(
        saying('200 OK', { 'content-type': 'video/mp4', 'content-encoding': coding }, gzipSync(content)),
      );
      await expect(ctx.fetch(server.url())).rejects.toMatchObject(corrupt);
      expect(server.requests).toHaveLength(1);
      expect(await readdir(ctx.folder)).toEqual([]);
    },
  );
});

describe('a download with a status other than 200', () => {
  it.each([400, 401, 403, 410])(
    'is abandoned after HTTP %d, so that the caller requests a new URL',
    async (status) => {
      const server = await ctx.start(saying(`${status} No`, {}, '{"error":{"message":"expired"}}'));
      expect(await ctx.fetch(server.url())).toMatchObject({
        kind: 'expired',
        failure: { message: 'expired' },
      });
      expect(server.requests).toHaveLength(1);
      expect(await readdir(ctx.folder)).toEqual([]);
    },
  );

  it.each([408, 429, 500, 202])('is retried after HTTP %d', async (status) => {
    const no = saying(`${status} Later`, { 'content-length': 0 });
    const server = await ctx.start(inTurn(no, no, no, file({ content })));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.requests).toHaveLength(4);
  });

  it('exits with 6 if the status does not change', async () => {
    const server = await ctx.start(saying('503 Busy', { 'content-length': 0 }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({
      exitCode: 6,
      charged: 'yes',
      retry: 'resume',
    });
    expect(server.requests).toHaveLength(4);
    const [first = 0, second = 0, third = 0] = ctx.clock.pauses;
    expect(first).toBeLessThan(second);
    expect(second).toBeLessThan(third);
  });

  it('is not retried before the Retry-After time', async () => {
    const busy = saying('429 Busy', { 'retry-after': 20 });
    const server = await ctx.start(inTurn(busy, file({ content })));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(ctx.clock.pauses).toEqual([20_000]);
  });

  it('ends immediately if Retry-After is a day, and the error contains the time', async () => {
    const server = await ctx.start(saying('429 Busy', { 'retry-after': 86_400 }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({
      code: 'rate_limited',
      exitCode: 6,
      message: expect.stringContaining('86400 s') as string,
    });
    expect(server.requests).toHaveLength(1);
  });

  it('prints the message of the response for the user', async () => {
    const notes: string[] = [];
    const server = await ctx.start(inTurn(saying('500 Oops', {}, 'Oops'), file({ content })));
    await ctx.fetch(server.url(), { note: (text) => notes.push(text) });
    expect(notes).toEqual([expect.stringMatching(/Oops; trying again in \d\.\d s\./)]);
  });
});

describe('a download without a connection', () => {
  it('is not retried, sends no request and exits with 6 if the certificate is untrusted, even with NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    onTestFinished(() => void vi.unstubAllEnvs());
    const certificate = selfSigned({ hosts: ['127.0.0.1'] });
    const server = await ctx.start(file({ content }), '127.0.0.1', certificate);
    await expect(ctx.fetch(server.url().replace('http:', 'https:'))).rejects.toMatchObject({
      code: 'unreachable',
      exitCode: 6,
      message: expect.stringContaining('certificate') as string,
    });
    expect([server.requests, ctx.clock.pauses]).toEqual([[], []]);
  });

  it('is retried, then exits with 6', async () => {
    const server = await ctx.start(() => undefined);
    const url = server.url();
    await server.stop();
    await expect(ctx.fetch(url)).rejects.toMatchObject({ code: 'unreachable', exitCode: 6, charged: 'yes' });
    expect(ctx.clock.pauses).toHaveLength(3);
  });

  it('is retried if the connection breaks before the response', async () => {
    const reset: Answer = (_, socket) => void socket.resetAndDestroy();
    const server = await ctx.start(inTurn(reset, reset, file({ content })));
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it.each([
    ['a protocol other than HTTP', 'SSH-2.0-OpenSSH\r\n'],
    ['endless headers', `HTTP/1.1 200 OK\r\n${`x: ${'y'.repeat(500)}\r\n`.repeat(400)}`],
  ])('exits with 6 if the server sends %s', async (_, bytes) => {
    const server = await ctx.start((_asked, socket) => void socket.end(bytes));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ exitCode: 6 });
  });
});

describe('an address that is not allowed', () => {
  it.each(['file:///etc/passwd', 'http://[::ffff:127.0.0.1]/', 'http://127.0.0.1/\n'])(
    'makes the download fail with exit code 9 without a request: %j',
    async (url) => {
      await expect(ctx.fetch(url)).rejects.toMatchObject({ code: 'result_unavailable', exitCode: 9 });
      expect(await readdir(ctx.folder)).toEqual([]);
    },
  );
});

describe('the key in a download', () => {
  const key = 'Bearer sk-secret';

  it('is sent to the gateway, and to another port on its loopback host', async () => {
    const server = await ctx.start(file({ content }));
    for (const base of [server.url('/'), 'http://127.0.0.1:1'])
      await ctx.fetch(server.url(), { gateway: gatewayAt(base) }, { key: 'own-site' });
    expect(server.header('authorization')).toEqual([key, key]);
  });

  it("is sent in the protocol's header", async () => {
    const server = await ctx.start(file({ content }));
    const gateway = { ...gatewayAt(), auth: { header: 'X-Api-Key', scheme: '' } };
    await ctx.fetch(server.url(), { gateway }, { key: 'own-site' });
    expect(server.header('x-api-key')).toEqual(['sk-secret']);
    expect(server.header('authorization')).toEqual(['']);
  });

  it('is not sent to another site, and the error names a site that requires a key', async () => {
    const server = await ctx.start(saying('401 Who', {}, '{"message":"who are you"}'), 'localhost');
    const url = server.url('/film.mp4', 'localhost');
    const origin = new URL(url).origin;
    expect(await ctx.fetch(url, {}, { key: 'own-site' })).toMatchObject({
      kind: 'refused',
      origin,
      failure: { message: 'who are you' },
    });
    expect(JSON.stringify(server.requests)).not.toContain('secret');
    await ctx.fetch(url, { gateway: gatewayAt('http://127.0.0.1:1', origin) }, { key: 'own-site' });
    expect(server.header('authorization')).toEqual(['', key]);
  });

  it('causes the address to be treated as expired if the address refuses the key', async () => {
    const server = await ctx.start(saying('403 No', {}));
    expect(await ctx.fetch(server.url(), {}, { key: 'own-site' })).toMatchObject({ kind: 'expired' });
  });
});

describe('a redirected download', () => {
  const to = (location: string, status = 302): Answer =>
    saying(`${status} Moved`, { location, 'content-length': 0 });

  it.each([301, 308])('follows a redirect with status %d', async (status) => {
    const server = await ctx.start(inTurn(to('/b?c=d', status), file({ content })));
    await expectWhole(await ctx.fetch(server.url('/a')), content);
    expect(server.requests.map(({ path }) => path)).toEqual(['/a', '/b?c=d']);
  });

  it('checks at each redirect that the key is sent only to the same site', async () => {
    const foreign = await ctx.start(
      (request, socket) => to(`http://127.0.0.1:${own.port}/back`)(request, socket),
      'localhost',
    );
    const own = await ctx.start(
      inTurn(
        to('/next'),
        (request, socket) => to(foreign.url('/away', 'localhost'))(request, socket),
        file({ content }),
      ),
    );
    await expectWhole(await ctx.fetch(own.url(), {}, { key: 'own-site' }), content);
    expect(own.header('authorization')).toEqual(['Bearer sk-secret', 'Bearer sk-secret', 'Bearer sk-secret']);
    expect(JSON.stringify(foreign.requests)).not.toContain('secret');
  });

  it('is treated as expired if an untrusted new host refuses the request', async () => {
    const foreign = await ctx.start(saying('403 No', {}), 'localhost');
    const own = await ctx.start(to(foreign.url('/x', 'localhost')));
    expect(await ctx.fetch(own.url(), {}, { key: 'own-site' })).toMatchObject({ kind: 'expired' });
  });

  it.each(['sk-secret', '%73k-secret', Buffer.from('sk-secret').toString('hex')])(
    'never requests a URL on another site that contains the key (%s)',
    async (held) => {
      const foreign = await ctx.start(file({ content }), 'localhost');
      const address = foreign.url(`/x?sig=${held}`, 'localhost');
      const own = await ctx.start(to(address));
      for (const url of [address, own.url()])
        await expect(ctx.fetch(url, {}, { key: 'own-site' })).rejects.toMatchObject({
          code: 'result_unavailable',
          message: expect.stringContaining('contains the key') as string,
        });
      expect(foreign.requests).toEqual([]);
    },
  );

  it.each([
    ['/视频.mp4', '/%E8%A7%86%E9%A2%91.mp4'],
    ['/%E8%A7%86.mp4', '/%E8%A7%86.mp4'],
  ])('follows a redirect to %s', async (location, path) => {
    const server = await ctx.start(inTurn(to(location), file({ content })));
    await expectWhole(await ctx.fetch(server.url('/a')), content);
    expect(server.requests.map((each) => each.path)).toEqual(['/a', path]);
  });

  it('exits with 9 at the sixth redirect', async () => {
    const server = await ctx.start(to('/film.mp4'));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ code: 'result_unavailable', exitCode: 9 });
    expect(server.requests).toHaveLength(6);
  });

  it.each(['http://169.254.169.254/x', 'file:///etc/passwd'])(
    'exits with 9 at a redirect to %s',
    async (location) => {
      const server = await ctx.start(to(location));
      await expect(ctx.fetch(server.url())).rejects.toMatchObject({
        code: 'result_unavailable',
        exitCode: 9,
      });
      expect(server.requests).toHaveLength(1);
    },
  );

  it('is treated as expired if the redirect has no target', async () => {
    const server = await ctx.start(saying('302 Moved', {}));
    expect(await ctx.fetch(server.url())).toMatchObject({ kind: 'expired' });
  });
});

describe("a download's deadline", () => {
  it.each([
    ['a silent connection', 150_000],
    ['no response', 0],
  ])('ends the download with exit 8 and keeps the received part (%s)', async (_, sent) => {
    const server = await ctx.start(
      inTurn((_asked, socket) => {
        if (sent === 0) return;
        socket.write(head('200 OK', { etag, 'content-length': content.length }));
        socket.write(content.subarray(0, sent));
      }, file({ content, etag })),
    );
    const deadline = deadlineIn(55_000, ctx.clock);
    const fetching = ctx.fetch(server.url(), {
      deadline,
      onProgress: () => ctx.clock.advance(60_000),
    });
    if (sent === 0) await expect.poll(() => server.requests.length).toBe(1);
    ctx.clock.advance(sent === 0 ? 60_000 : 0);
    const message = expect.stringMatching(/: .+\. Any received part is kept\.$/) as string;
    await expect(fetching).rejects.toMatchObject({ code: 'pending', exitCode: 8, retry: 'resume', message });
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')[1] ?? '').toMatch(sent === 0 ? /^$/ : /^bytes=[1-9]\d*-$/);
  });

  it('shortens the pause between attempts', async () => {
    const server = await ctx.start(saying('503 Busy', { 'retry-after': 200 }));
    const clock = new TestClock(1000);
    const fetching = ctx.fetch(server.url(), {
      clock,
      deadline: deadlineIn(55_000, clock),
      note: () => setImmediate(() => clock.advance(55_000)),
    });
    await expect(fetching).rejects.toMatchObject({ code: 'pending', exitCode: 8 });
    expect(server.requests).toHaveLength(1);
  });
});

describe("a download's interruption", () => {
  it('ends the download with the reason and keeps the received part', async () => {
    const server = await ctx.start(
      inTurn((_, socket) => {
        socket.write(head('200 OK', { etag, 'content-length': content.length }));
        socket.write(content.subarray(0, 150_000));
      }, file({ content, etag })),
    );
    const stop = new AbortController();
    const fetching = ctx.fetch(server.url(), {
      signal: stop.signal,
      onProgress: () => stop.abort('SIGTERM'),
    });
    await expect(fetching).rejects.toBe('SIGTERM');
    expect((await readdir(ctx.folder)).sort()).toEqual(['film.mp4.part', 'film.mp4.part.json']);
    await expectWhole(await ctx.fetch(server.url(), { claimant: claimantOf(2) }), content);
    expect(server.header('range')[1]).toMatch(/^bytes=[1-9]\d*-$/);
  });

  it('sends nothing if it comes before the first request', async () => {
    const server = await ctx.start(file({ content }));
    await expect(ctx.fetch(server.url(), { signal: AbortSignal.abort('SIGINT') })).rejects.toBe('SIGINT');
    expect(server.requests).toEqual([]);
  });

  it('ends a pause between attempts', async () => {
    const server = await ctx.start(saying('503 Busy', { 'retry-after': 200 }));
    const stop = new AbortController();
    const fetching = ctx.fetch(server.url(), { signal: stop.signal, note: () => stop.abort('SIGINT') });
    await expect(fetching).rejects.toBe('SIGINT');
  });
});
