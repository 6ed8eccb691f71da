import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import Client from 'undici/lib/dispatcher/client.js';
import { describe, expect, it, vi } from 'vitest';
import { bearer, type Exchange, xApiKey } from '../../src/exchange.ts';
import {
  createClient,
  withDeadline,
  type CallOptions,
  type ClientOptions,
  type GatewayClient,
} from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { onEnd } from '../support/clean-ups.ts';
import { closedPort, httpServer, says, tcpServer } from '../support/servers.ts';

const key = 'sk-canary-0f1e2d3c4b5a6978';
const get: Exchange = { method: 'GET', path: '/v1/models', headers: {} };
const post: Exchange = {
  method: 'POST',
  path: '/v1/videos',
  headers: { 'content-type': 'application/json' },
  body: '{"p":"é"}',
};
const call: CallOptions = { auth: bearer, timeoutMs: 5000 };
const recorded: CallOptions = { ...call, onConnected: () => Promise.resolve() };

function clientFor(url: string, more: Partial<ClientOptions> = {}): GatewayClient {
  const client = createClient({ baseUrl: new URL(url), key, userAgent: 'mgw/test', ...more });
  onEnd(() => client.close());
  return client;
}

async function failure(made: Promise<unknown>): Promise<TransportError> {
  const error = await made.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof TransportError) return error;
  throw error instanceof Error ? error : new Error('the call succeeded');
}

/** Starts a server that responds to each request with raw bytes and leaves the connection open. */
async function rawServer(
  say: (socket: Socket, count: number) => void,
): Promise<{ url: string; connections: number }> {
  const server = await tcpServer((socket, count) => void socket.once('data', () => say(socket, count)));
  return Object.defineProperty({ url: `http://127.0.0.1:${server.port}`, connections: 0 }, 'connections', {
    get: () => server.connections,
  });
}

describe('a request', () => {
  it('is sent unchanged below the base path, with its length in bytes, and contains the key only once', async () => {
    const server = await httpServer(says('{}'));
    await clientFor(`${server.url}/gateway/`).exchange(post, recorded);
    const [seen] = server.requests;
    expect(seen).toMatchObject({ method: 'POST', path: '/gateway/v1/videos', body: post.body });
    expect(seen?.headers).toMatchObject({
      host: `127.0.0.1:${server.port}`,
      'user-agent': 'mgw/test',
      'content-type': 'application/json',
      'content-length': '10',
      'accept-encoding': 'identity',
      authorization: `Bearer ${key}`,
    });
    expect(JSON.stringify(seen?.headers).split(key)).toHaveLength(2);
  });

  it('contains the key only in the required header', async () => {
    const server = await httpServer(says('{}'));
    await clientFor(server.url).exchange(get, { ...call, auth: xApiKey });
    await clientFor(server.url, { key: '' }).exchange(get, call);
    expect(server.requests[0]?.headers).toMatchObject({ 'x-api-key': key });
    expect(server.requests[0]?.headers.authorization).toBeUndefined();
    expect(server.requests[1]?.headers.authorization).toBeUndefined();
  });

  it.each<[string, Exchange, Partial<ClientOptions>]>([
    ['a path with a line break', { ...get, path: '/v1/a\r\nX: y' }, {}],
    ['a path beyond ASCII', { ...get, path: '/v1/é' }, {}],
    ['a header with a line break', { ...get, headers: { 'x-a': 'b\r\nc: d' } }, {}],
    ['a key beyond Latin-1', get, { key: 'key…' }],
  ])(
    'is refused before a connection is made or anything is recorded if it has %s',
    async (_, request, more) => {
      const server = await httpServer();
      let recordedIt = false;
      const onConnected = (): Promise<void> => {
        recordedIt = true;
        return Promise.resolve();
      };
      const refused = clientFor(server.url, more).exchange(request, { ...call, onConnected });
      await expect(refused).rejects.toThrow(TypeError);
      await expect(refused).rejects.not.toThrow(/key…/);
      expect([recordedIt, server.connections]).toEqual([false, 0]);
    },
  );

  it('is traced without the key', async () => {
    const server = await httpServer(says('{}'));
    const lines: string[] = [];
    await clientFor(server.url, { trace: (line) => lines.push(line) }).exchange(get, call);
    expect(lines).toEqual([`> GET ${server.url}/v1/models`, '< 200 application/json']);
  });
});

describe('the hook before the first byte', () => {
  it('delays every byte until it has finished', async () => {
    const received: string[] = [];
    const server = await tcpServer((socket) => {
      socket.on('data', (bytes) => {
        received.push(bytes.toString());
        socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}');
      });
    });
    let before: unknown;
    const onConnected = async (): Promise<void> => {
      for (let turns = 0; turns < 50 || server.connections === 0; turns += 1) await turn();
      before = { connections: server.connections, received: [...received] };
    };
    const reply = await clientFor(`http://127.0.0.1:${server.port}`).exchange(post, { ...call, onConnected });
    expect(before).toEqual({ connections: 1, received: [] });
    expect(reply).toMatchObject({ status: 200, text: '{}', complete: true });
    expect(received.join('')).toContain('POST /v1/videos');
  });

  it('makes the call rethrow its error, send nothing and close the connection if the hook fails', async () => {
    let closed = false;
    const chunks: Buffer[] = [];
    const server = await tcpServer((socket) => {
      socket.on('data', (bytes) => chunks.push(bytes)).on('close', () => (closed = true));
    });
    const error = new RangeError('the disk is full');
    const sent = clientFor(`http://127.0.0.1:${server.port}`).exchange(post, {
      ...call,
      onConnected: () => Promise.reject(error),
    });
    await expect(sent).rejects.toBe(error);
    await expect.poll(() => closed).toBe(true);
    expect(chunks).toEqual([]);
  });

  it('is required, so nothing is sent if a replaced dispatcher connects without calling the hook', async () => {
    const server = await httpServer(says('{}'));
    const other = new Client(server.url);
    onEnd(() => other.destroy());
    const dispatch = other.dispatch.bind(other);
    const replaced = vi.spyOn(Client.prototype, 'dispatch').mockImplementation(dispatch);
    onEnd(() => replaced.mockRestore());
    const sent = clientFor(server.url).exchange(post, recorded);
    expect(await failure(sent)).toMatchObject({ phase: 'unsent', reason: 'aborted_before_send' });
    expect(server.requests).toEqual([]);
  });

  it('is not followed by any byte if the call is interrupted while the hook runs', async () => {
    const server = await httpServer(says('{}'));
    const controller = new AbortController();
    const onConnected = (): Promise<void> => {
      controller.abort('SIGINT');
      return Promise.resolve();
    };
    const sent = clientFor(server.url).exchange(post, { ...call, onConnected, signal: controller.signal });
    expect(await failure(sent)).toMatchObject({ phase: 'unsent', reason: 'aborted_before_send' });
    for (let turns = 0; turns < 50; turns += 1) await turn();
    expect(server.requests).toEqual([]);
  });

  it('does not run if no connection is made', async () => {
    let wasCalled = false;
    const onConnected = (): Promise<void> => {
      wasCalled = true;
      return Promise.resolve();
    };
    const url = `http://127.0.0.1:${await closedPort()}`;
    const error = await failure(clientFor(url).exchange(post, { ...call, onConnected }));
    expect(error).toMatchObject({ phase: 'unsent', reason: 'unreachable' });
    expect(error.message).toContain('ECONNREFUSED');
    expect(wasCalled).toBe(false);
  });

  it('makes the call report the request as sent if the connection breaks while the hook runs', async () => {
    const sockets: Socket[] = [];
    const server = await tcpServer((socket) => void sockets.push(socket));
    const onConnected = async (): Promise<void> => {
      await expect.poll(() => sockets.length).toBe(1);
      sockets[0]?.resetAndDestroy();
      for (let turns = 0; turns < 50; turns += 1) await turn();
    };
    const sent = clientFor(`http://127.0.0.1:${server.port}`).exchange(post, { ...call, onConnected });
    expect(await failure(sent)).toMatchObject({ phase: 'sent', reason: 'broken' });
  });

  it('requires a new connection for each submission, but reads share connections', async () => {
    const server = await httpServer(says('{}'));
    const client = clientFor(server.url);
    for (let count = 0; count < 3; count += 1) {
      await client.exchange(get, call);
      // If the server closes the connection after its response, the client detects the close in this turn of the event
      // loop.
      await turn();
    }
    expect(server.connections).toBe(1);
    for (let count = 0; count < 2; count += 1) await client.exchange(post, recorded);
    expect(server.connections).toBe(3);
  });

  it('allows an interruption before the connection is made, but not after', async () => {
    const silent = await tcpServer(() => undefined);
    const controller = new AbortController();
    const patient = clientFor(`https://127.0.0.1:${silent.port}`, { connectTimeoutMs: 120_000 });
    const connecting = patient.exchange(post, {
      ...recorded,
      timeoutMs: 120_000,
      connectSignal: controller.signal,
    });
    controller.abort('SIGINT');
    expect(await failure(connecting)).toMatchObject({ phase: 'unsent' });
    const later = new AbortController();
    const server = await httpServer((seen, response) => {
      later.abort('SIGINT');
      says('{}')(seen, response);
    });
    const reply = await clientFor(server.url).exchange(post, { ...recorded, connectSignal: later.signal });
    expect(reply.complete).toBe(true);
  });
});

describe('a request whose response may be incomplete', () => {
  it.each<[string, (socket: Socket) => void]>([
    ['a reset', (socket) => socket.resetAndDestroy()],
    ['a closed connection', (socket) => socket.end()],
    ['a protocol other than HTTP', (socket) => socket.end('SSH-2.0-OpenSSH\r\n')],
    ['half the headers', (socket) => socket.end('HTTP/1.1 200 OK\r\nx-a: b\r\n')],
    [
      'an upgrade',
      (socket) =>
        socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
    ],
    [
      'headers without end',
      (socket) => endless(socket, 'HTTP/1.1 200 OK\r\n', `x-a: ${'y'.repeat(500)}\r\n`),
    ],
    ['one endless header', (socket) => endless(socket, 'HTTP/1.1 200 OK\r\nx-a: ', 'y'.repeat(500))],
    [
      'two different lengths',
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}'),
    ],
  ])('is reported as sent after %s', async (_, say) => {
    const server = await rawServer(say);
    const patient = { ...recorded, timeoutMs: 120_000 };
    expect(await failure(clientFor(server.url).exchange(post, patient))).toMatchObject({
      phase: 'sent',
      reason: 'broken',
    });
    expect(server.connections).toBe(1);
  });

  it('is reported as sent if no response arrives in time, and the error contains the timeout', async () => {
    const server = await rawServer(() => undefined);
    for (const options of [recorded, call]) {
      const error = await failure(clientFor(server.url).exchange(post, { ...options, timeoutMs: 1000 }));
      expect(error).toMatchObject({ phase: 'sent', reason: 'timeout' });
      expect(error.message).toContain('no response within 1 s');
    }
  });

  it('is reported as sent if the caller abandons the request', async () => {
    const controller = new AbortController();
    const server = await rawServer(() => controller.abort('SIGINT'));
    const sent = clientFor(server.url).exchange(post, { ...recorded, signal: controller.signal });
    expect(await failure(sent)).toMatchObject({ phase: 'sent' });
  });

  it.each<[string, string, string]>([
    ['shorter than its length', 'content-length: 50\r\n\r\n{"task_id":1}', '{"task_id":1}'],
    ['truncated in a chunk', 'transfer-encoding: chunked\r\n\r\n10\r\n{"a":', '{"a":'],
    ['without its last chunk', 'transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n', '{}'],
    ['without a chunk size', 'transfer-encoding: chunked\r\n\r\nzz\r\n{}', '{}'],
    ['chunked with a wrong chunk size', 'transfer-encoding: chunked\r\n\r\n2\r\n{"id":1}', '{"id":1}'],
  ])('returns the received part as incomplete if the body is %s', async (_, rest, text) => {
    const server = await rawServer((socket) => socket.end(`HTTP/1.1 200 OK\r\n${rest}`));
    expect(await clientFor(server.url).exchange(post, recorded)).toMatchObject({ text, complete: false });
  });

  it.each([
    [
      'both a length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
    [
      'an unrequested 100 response',
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
    ['lines without a CR', 'HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n'],
  ])(
    'returns a complete response with %s, regardless of how the response is split into packets',
    async (_, head) => {
      const bytes = Buffer.from(`${head}8\r\n{"id":1}\r\n0\r\n\r\n`);
      for (const cuts of [[bytes], Array.from(bytes, (byte) => Buffer.from([byte]))]) {
        const server = await rawServer((socket) => {
          for (const cut of cuts) socket.write(cut);
        });
        expect(await clientFor(server.url).exchange(post, recorded)).toMatchObject({
          status: 200,
          text: '{"id":1}',
          complete: true,
        });
      }
    },
  );

  it.each([
    [
      'an unrequested 100 response',
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"id":1}',
    ],
    [
      'both a length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"id":1}\r\n0\r\n\r\n',
    ],
    ['two equal lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 8\r\nContent-Length: 8\r\n\r\n{"id":1}'],
  ])('returns each complete response of a shared connection with %s', async (_, answer) => {
    const server = await tcpServer((socket) => socket.on('data', () => socket.write(answer)));
    const client = clientFor(`http://127.0.0.1:${server.port}`);
    const complete = { status: 200, text: '{"id":1}', complete: true };
    for (let count = 0; count < 3; count += 1) {
      expect(await client.exchange(get, call)).toMatchObject(complete);
      await turn();
    }
    expect(server.connections).toBe(1);
  });

  it('returns the received part as incomplete if the connection is reset and the length is unknown', async () => {
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 400 Bad Request\r\n\r\n{"error":{}}');
      setTimeout(() => socket.resetAndDestroy(), 30);
    });
    const reply = await clientFor(server.url).exchange(post, recorded);
    expect(reply).toMatchObject({ status: 400, text: '{"error":{}}', complete: false });
  });

  it('returns a complete response if extra bytes follow the body', async () => {
    const server = await rawServer((socket) =>
      socket.end('HTTP/1.1 422 No\r\ncontent-length: 2\r\n\r\n{}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n'),
    );
    for (const options of [recorded, call])
      expect(await clientFor(server.url).exchange(post, options)).toMatchObject({
        text: '{}',
        complete: true,
      });
  });

  it('returns the received part as incomplete if the body stalls until the timeout', async () => {
    const server = await rawServer((socket) =>
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"a'),
    );
    const reply = await clientFor(server.url).exchange(get, { ...call, timeoutMs: 1000 });
    expect(reply).toMatchObject({ status: 200, text: '{"a', complete: false });
  });

  it('returns the body up to the limit if the body is endless', async () => {
    const server = await rawServer((socket) =>
      endless(socket, 'HTTP/1.1 200 OK\r\n\r\n', 'x'.repeat(10_000)),
    );
    const reply = await clientFor(server.url).exchange(get, { ...call, maxBytes: 30_000 });
    expect(reply.text).toHaveLength(30_000);
    expect(reply.complete).toBe(false);
  });

  it('fails if the head of the response exceeds 64 KiB', async () => {
    const server = await rawServer((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(65 * 1024)}\r\ncontent-length: 2\r\n\r\n{}`),
    );
    expect((await failure(clientFor(server.url).exchange(get, call))).message).toMatch(/header/i);
  });

  it('returns a complete response at exactly the limit, and an incomplete response one byte above the limit', async () => {
    const server = await httpServer(says('x'.repeat(1000)));
    const client = clientFor(server.url);
    expect((await client.exchange(get, { ...call, maxBytes: 1000 })).complete).toBe(true);
    expect(await client.exchange(get, { ...call, maxBytes: 999 })).toMatchObject({
      text: 'x'.repeat(999),
      complete: false,
    });
  });
});

function endless(socket: Socket, begin: string, more: string): void {
  const go = (): void => {
    while (socket.writable && socket.write(more));
    if (socket.writable) socket.once('drain', go);
  };
  socket.write(begin);
  go();
}

describe('reading a response', () => {
  it('treats redirects like other responses', async () => {
    const other = await httpServer();
    for (const status of [301, 307]) {
      const server = await httpServer(says('', status, { location: `${other.url}/x` }));
      expect(await clientFor(server.url).exchange(post, recorded)).toMatchObject({
        status,
        headers: { location: `${other.url}/x` },
      });
    }
    expect(other.connections).toBe(0);
  });

  it('converts header names to lower case, joins repeated headers, and accepts unusual headers', async () => {
    const server = await rawServer((socket) =>
      socket.end(
        'HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nset-cookie: a\r\nset-cookie: b\r\n__proto__: x\r\ncontent-length: 0\r\n\r\n',
      ),
    );
    const { headers } = await clientFor(server.url).exchange(get, call);
    expect(headers).toMatchObject({ 'x-a': '1, 2', 'set-cookie': 'a, b' });
    expect(Object.getPrototypeOf(headers)).toBe(Object.prototype);
  });

  const text = JSON.stringify({ words: 'é'.repeat(5000) });
  it.each<[string, Buffer]>([
    ['gzip', gzipSync(text)],
    ['deflate', deflateSync(text)],
    ['BR', brotliCompressSync(text)],
  ])('decodes %s even if it was not requested', async (coding, bytes) => {
    const server = await httpServer((_, response) => {
      response.writeHead(200, { 'content-encoding': coding }).end(bytes);
    });
    expect(await clientFor(server.url).exchange(get, call)).toMatchObject({ text, complete: true });
  });

  it('marks a compressed body as incomplete if it is truncated or damaged', async () => {
    const whole = gzipSync(text);
    const broken = Buffer.from(whole);
    broken.fill(0xff, 20, 30);
    for (const bytes of [whole.subarray(0, -9), broken, Buffer.from('plain')]) {
      const server = await httpServer((_, response) => {
        response.writeHead(200, { 'content-encoding': 'gzip' }).end(bytes);
      });
      expect((await clientFor(server.url).exchange(get, call)).complete).toBe(false);
    }
  });

  it('decompresses a compression bomb only up to the limit', async () => {
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
    const server = await httpServer((_, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
    });
    const before = process.memoryUsage().rss;
    const reply = await clientFor(server.url).exchange(get, { ...call, maxBytes: 100_000 });
    expect(reply).toMatchObject({ complete: false });
    expect(reply.text).toHaveLength(100_000);
    expect(process.memoryUsage().rss - before).toBeLessThan(48 * 1024 * 1024);
  });

  it.each(['constructor', 'gzip, gzip'])('does not decode the unknown coding %s', async (coding) => {
    const server = await httpServer(says('{"a":1}', 200, { 'content-encoding': coding }));
    expect(await clientFor(server.url).exchange(get, call)).toMatchObject({
      text: '{"a":1}',
      complete: true,
    });
  });
});

describe('a stream', () => {
  async function read(body: AsyncIterable<Uint8Array>): Promise<string> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of body) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  }

  it('returns the head first and then the body as it arrives, and applies the timeout only to the head', async () => {
    const sockets: Socket[] = [];
    const server = await rawServer((socket) => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst');
      sockets.push(socket);
    });
    const { status, body } = await clientFor(server.url).stream(post, { ...recorded, timeoutMs: 1000 });
    expect(status).toBe(200);
    setTimeout(() => sockets[0]?.write('later'), 1200);
    expect(await read(body)).toBe('firstlater');
  });

  it('is reported as sent if the head does not arrive in time or the body is truncated', async () => {
    const silent = await rawServer(() => undefined);
    expect(await failure(clientFor(silent.url).stream(post, { ...call, timeoutMs: 1000 }))).toMatchObject({
      phase: 'sent',
      reason: 'timeout',
    });
    const cut = await rawServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst'));
    const { body } = await clientFor(cut.url).stream(post, call);
    expect(await failure(read(body))).toMatchObject({ phase: 'sent' });
  });

  // When the connection ends, undici has already read all bytes. The client must neither wait for more bytes nor treat
  // the end as a broken connection.
  describe('whose connection ends while received data has not been read', () => {
    const headOf = (...lines: string[]): string => ['HTTP/1.1 200 OK', ...lines, '', ''].join('\r\n');
    it.each<[string, string, { ended: boolean; reset: boolean }]>([
      ['a length', headOf('content-length: 8'), { ended: true, reset: true }],
      ['a length that is not reached', headOf('content-length: 9'), { ended: false, reset: false }],
      ['no length', headOf(), { ended: true, reset: false }],
      [
        'chunks without an end',
        `${headOf('transfer-encoding: chunked')}8\r\n`,
        { ended: false, reset: false },
      ],
    ])('is complete only if everything arrived (a response with %s)', async (_, head, isWhole) => {
      for (const how of ['ended', 'reset'] as const) {
        let end = (): unknown => undefined;
        const server = await rawServer((socket) => {
          socket.write(`${head}12345678`);
          end = () => (how === 'ended' ? socket.end() : socket.resetAndDestroy());
        });
        let closing: Promise<unknown> | undefined;
        const { body } = await clientFor(server.url).stream(post, {
          ...call,
          maxBuffered: 8,
          onConnected: (socket?: Socket) => {
            closing = new Promise((done) => socket?.once('close', done));
            return Promise.resolve();
          },
        });
        end();
        await closing;
        const received: Uint8Array[] = [];
        const reading = (async () => {
          for await (const chunk of body) received.push(chunk);
          return 'whole';
        })().catch((error: unknown) => (error as TransportError).phase);
        expect(await reading).toBe(isWhole[how] ? 'whole' : 'sent');
        expect(Buffer.concat(received).toString()).toBe('12345678');
      }
    });
  });

  it('ends if it is closed or the caller is interrupted', async () => {
    for (const how of ['close', 'abort'] as const) {
      const controller = new AbortController();
      let isClosed = false;
      const server = await rawServer((socket) => {
        socket.on('close', () => (isClosed = true));
        socket.write('HTTP/1.1 200 OK\r\n\r\nfirst');
      });
      const answer = await clientFor(server.url).stream(post, { ...call, signal: controller.signal });
      const reading = failure(read(answer.body));
      if (how === 'close') answer.close();
      else controller.abort('SIGINT');
      expect(await reading).toMatchObject({ phase: 'sent' });
      await expect.poll(() => isClosed).toBe(true);
    }
  });
});

describe("at the command's deadline,", () => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n';
  const almostOver = { remainingMs: () => 0 };
  const clientAt = async (said: string): Promise<GatewayClient> => {
    const { url } = await rawServer((socket) => void socket.write(said));
    return withDeadline(clientFor(url), almostOver);
  };

  it.each([
    ['read', call],
    ['submission', recorded],
  ])('a %s ends if the head or the body stalls', async (_, options) => {
    const [silent, stalled] = [await clientAt('HTTP/1.1 200 OK\r\nx: '), await clientAt(`${head}{`)];
    const [error, reply] = await Promise.all([
      failure(silent.exchange(get, { ...options, timeoutMs: 60_000 })),
      stalled.exchange(get, { ...options, timeoutMs: 60_000 }),
    ]);
    expect(error).toMatchObject({ phase: 'sent', reason: 'timeout' });
    expect(error.message).toContain('the deadline passed');
    expect(reply).toMatchObject({ text: '{', complete: false });
  });

  it('a stream ends, even if its head has arrived', async () => {
    const client = await clientAt(`${head}{`);
    const { body } = await client.stream(get, { ...call, timeoutMs: 60_000 });
    const read = async (): Promise<void> => {
      for await (const chunk of body) expect(chunk.length).toBe(1);
    };
    const error = await failure(read());
    expect(error.message).toContain('the deadline passed');
  });
});

it('closing a client closes its idle connections and its open requests', async () => {
  let open = 0;
  const silent = await tcpServer((socket) => {
    open += 1;
    socket.resume().on('close', () => (open -= 1));
  });
  const client = clientFor(`https://127.0.0.1:${silent.port}`);
  const reading = failure(client.exchange(get, call));
  await expect.poll(() => open).toBe(1);
  client.close();
  expect(await reading).toMatchObject({ phase: 'unsent' });
  await expect.poll(() => open).toBe(0);
});
