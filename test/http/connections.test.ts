import { execFile } from 'node:child_process';
import type { LookupOptions } from 'node:dns';
import type * as dns from 'node:dns/promises';
import { writeFileSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import { connect as connectTcp, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { createServer as createTls, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { bearer } from '../../src/exchange.ts';
import { sendRequest } from '../../src/http/send-request.ts';
import { createClient } from '../../src/http/client.ts';
import {
  openConnections,
  type ConnectionOptions,
  type Socket as Standing,
} from '../../src/http/connections.ts';
import { isLoopback } from '../../src/http/reach.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { newAuthority, selfSigned, type Certificate } from '../support/certificates.ts';
import { onEnd } from '../support/clean-ups.ts';
import { closedPort, freshFolder, httpServer, says, tcpServer } from '../support/servers.ts';

/** The addresses of host names. The system resolves all other names. */
const names = vi.hoisted(() => new Map<string, { address: string; family: number }[]>());

vi.mock('node:dns/promises', async (original) => {
  const real = await original<typeof dns>();
  const lookup = async (host: string, options: LookupOptions): Promise<unknown> =>
    names.get(host) ?? (await real.lookup(host, options));
  return { ...real, lookup };
});

beforeEach(() => {
  for (const name of ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'])
    for (const spelling of [name, name.toLowerCase()]) vi.stubEnv(spelling, undefined);
});

afterEach(() => {
  vi.unstubAllEnvs();
  names.clear();
});

async function open(url: string, options: Partial<ConnectionOptions> = {}): Promise<Standing> {
  const connections = await openConnections(new URL(url), { timeoutMs: 2000, maxConnections: 1, ...options });
  onEnd(() => connections.destroy(new Error('the test has ended')));
  return connections.connect();
}

async function failure(connecting: Promise<unknown>): Promise<TransportError> {
  const error = await connecting.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof TransportError) return error;
  throw error instanceof Error ? error : new Error('it connected');
}

interface TlsServer {
  port: number;
  connections: number;
  /** The number of handshakes that the client completed. */
  handshakes: number;
  received: Buffer[];
}

async function tlsServer(certificate: Certificate): Promise<TlsServer> {
  const state: TlsServer = { port: 0, connections: 0, handshakes: 0, received: [] };
  const sockets = new Set<TLSSocket>();
  const server = createTls(certificate, (socket) => {
    state.handshakes += 1;
    sockets.add(socket);
    socket.on('error', () => undefined).on('data', (bytes: Buffer) => state.received.push(bytes));
  });
  server.on('connection', () => (state.connections += 1)).on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  state.port = (server.address() as AddressInfo).port;
  onEnd(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => void server.close(() => resolve()));
  });
  return state;
}

describe('a failure to connect', () => {
  it.each<[string, () => Promise<string>, RegExp]>([
    ['a closed port', async () => `http://127.0.0.1:${await closedPort()}`, /ECONNREFUSED/],
    ['a reset during the handshake', () => handshake((socket) => socket.resetAndDestroy()), /ECONNRESET/],
    [
      'a connection that closes during the handshake',
      () => handshake((socket) => socket.end()),
      /closed|disconnected/,
    ],
    [
      'a response without TLS',
      () => handshake((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
      /does not speak TLS/,
    ],
  ])('is reported as unsent after %s', async (_, urlOf, words) => {
    const error = await failure(open(await urlOf()));
    expect(error).toMatchObject({ phase: 'unsent', reason: 'unreachable' });
    expect(error.message).toMatch(words);
  });

  it('is reported as unsent if the handshake gets no response within the timeout, and no connection remains open', async () => {
    let stillOpen = 0;
    const server = await tcpServer((socket) => {
      stillOpen += 1;
      socket.resume().on('close', () => (stillOpen -= 1));
    });
    const error = await failure(open(`https://127.0.0.1:${server.port}`, { timeoutMs: 80 }));
    expect(error).toMatchObject({ phase: 'unsent', reason: 'unreachable' });
    expect(error.message).toContain('within 0.08 s');
    await expect.poll(() => stillOpen).toBe(0);
  });

  it('is reported as unsent if the call is interrupted before or while it connects', async () => {
    const server = await tcpServer(() => undefined);
    const early = { signals: [undefined, AbortSignal.abort('SIGINT')] };
    expect((await failure(open(`http://127.0.0.1:${server.port}`, early))).phase).toBe('unsent');
    const late = new AbortController();
    const connecting = failure(open(`https://127.0.0.1:${server.port}`, { signals: [late.signal] }));
    late.abort('SIGINT');
    expect((await connecting).phase).toBe('unsent');
  });

  async function handshake(answer: (socket: Socket) => void): Promise<string> {
    const server = await tcpServer((socket) => void socket.once('data', () => answer(socket)));
    return `https://127.0.0.1:${server.port}`;
  }
});

describe('certificates', () => {
  it('end the handshake before any byte of the body if they are untrusted, even with NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    const server = await tlsServer(selfSigned({ hosts: ['127.0.0.1', 'localhost', 'gateway.test'] }));
    const client = createClient({
      baseUrl: new URL(`https://127.0.0.1:${server.port}`),
      key: 'k',
      userAgent: 'test',
    });
    let recorded = false;
    const sent = client.exchange(
      { method: 'POST', path: '/', headers: {}, body: '{}' },
      {
        auth: bearer,
        timeoutMs: 2000,
        onConnected: () => {
          recorded = true;
          return Promise.resolve();
        },
      },
    );
    const error = await failure(sent);
    expect(error).toMatchObject({ phase: 'unsent', reason: 'certificate' });
    expect(error.message).toContain('the certificate is not valid');
    expect([server.connections, server.received.length, recorded]).toEqual([1, 0, false]);
  });

  // Node reads NODE_EXTRA_CA_CERTS only at startup, so the test connects in a separate process.
  it('are checked for their validity period and their host or address, even if the authority is trusted', async () => {
    const authority = newAuthority();
    const day = 86_400_000;
    const at = (ms: number): Date => new Date(Date.now() + ms);
    const servers = {
      good: await tlsServer(authority.issue({ hosts: ['localhost', '127.0.0.1'] })),
      expired: await tlsServer(
        authority.issue({ hosts: ['localhost'], notBefore: at(-2 * day), notAfter: at(-day) }),
      ),
      early: await tlsServer(
        authority.issue({ hosts: ['localhost'], notBefore: at(day), notAfter: at(2 * day) }),
      ),
      other: await tlsServer(authority.issue({ hosts: ['other.example'] })),
    };
    const urls = Object.values(servers).map(({ port }) => `https://localhost:${port}`);
    urls.push(`https://127.0.0.1:${servers.good.port}`);
    const seen = await connectElsewhere(urls, authority.cert);
    expect(seen).toEqual(['connected', ...Array<string>(3).fill('unsent certificate'), 'connected']);
    const counts = Object.values(servers).map(({ connections, received }) => [connections, received.length]);
    expect(counts).toEqual([
      [2, 0],
      [1, 0],
      [1, 0],
      [1, 0],
    ]);
  });
});

it('a single connection is never reopened, even if the server has closed it', async () => {
  let count = 0;
  const server = createHttp((_, response) => response.setHeader('connection', 'close').end('{}'));
  server.on('connection', () => (count += 1));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => void server.close());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const connections = await openConnections(new URL(origin), { timeoutMs: 2000, maxConnections: 1 });
  onEnd(() => connections.destroy(new Error('the test has ended')));
  const request = { method: 'POST', origin, path: '/', headers: {}, body: '{}' };
  const signal = new AbortController().signal;
  const first = await sendRequest(connections, request, { maxBuffered: 100, signal });
  first.resume();
  await expect(sendRequest(connections, request, { maxBuffered: 100, signal })).rejects.toThrow(
    'mgw does not reopen it',
  );
  expect(count).toBe(1);
});

const PROGRAM = `
  import { openConnections } from './connections.mjs';
  for (const url of process.argv.slice(2)) {
    try {
      const connections = await openConnections(new URL(url), { timeoutMs: 5000, maxConnections: 1 });
      (await connections.connect()).destroy();
      console.log('connected');
    } catch (error) {
      console.log(error.phase, error.reason);
    }
  }
`;

/** Connects to `urls` in a process that trusts `authority`, and returns the results. */
async function connectElsewhere(urls: string[], authority: string): Promise<string[]> {
  const folder = freshFolder();
  const file = join(folder, 'connections.mjs');
  await build({
    input: 'src/http/connections.ts',
    platform: 'node',
    output: { file, format: 'esm', codeSplitting: false },
    logLevel: 'silent',
  });
  writeFileSync(join(folder, 'program.mjs'), PROGRAM);
  writeFileSync(join(folder, 'ca.pem'), authority);
  const env = { PATH: process.env['PATH'], NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem') };
  const run = await promisify(execFile)(process.execPath, [join(folder, 'program.mjs'), ...urls], { env });
  return run.stdout.trim().split('\n');
}

interface Proxy {
  url: string;
  /** The target and credentials of each request. */
  requests: { target: string; credentials: string | undefined }[];
}

/** Starts a proxy that tunnels every request to the port `to`, or refuses every request with `status`. */
async function proxy(to: number, status = 200): Promise<Proxy> {
  const requests: Proxy['requests'] = [];
  const sockets = new Set<Socket>();
  const server = createHttp();
  server.on('connect', (request, socket: Socket) => {
    requests.push({ target: request.url ?? '', credentials: request.headers['proxy-authorization'] });
    sockets.add(socket);
    socket.on('error', () => undefined);
    if (status !== 200) return void socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
    const target = connectTcp(to, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(target).pipe(socket);
    });
    sockets.add(target);
    target.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    return new Promise((resolve) => void server.close(() => resolve()));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

describe('a proxy set in the environment', () => {
  const ask = (url: string, connectTimeoutMs = 2000): Promise<{ status: number; text: string }> => {
    const client = createClient({ baseUrl: new URL(url), key: 'k', userAgent: 'test', connectTimeoutMs });
    onEnd(() => client.close());
    return client.exchange(
      { method: 'GET', path: '/', headers: {} },
      { auth: bearer, timeoutMs: 10_000, onConnected: () => Promise.resolve() },
    );
  };

  it('is used with its credentials', async () => {
    const server = await httpServer(says('{"ok":1}'));
    const through = await proxy(server.port);
    vi.stubEnv('http_proxy', through.url.replace('//', '//us%40er:p%3Aw@'));
    expect(await ask('http://gateway.test:8080')).toMatchObject({ status: 200, text: '{"ok":1}' });
    const credentials = `Basic ${Buffer.from('us@er:p:w').toString('base64')}`;
    expect(through.requests).toEqual([{ target: 'gateway.test:8080', credentials }]);
    expect(server.requests[0]?.headers).not.toHaveProperty('proxy-authorization');
  });

  it('may have a user name without a password, or an address without a scheme', async () => {
    const server = await httpServer(says('{}'));
    const through = await proxy(server.port);
    for (const [address, credentials] of [
      [through.url.replace('//', '//token@'), `Basic ${Buffer.from('token:').toString('base64')}`],
      [through.url.replace('http://', ''), undefined],
    ]) {
      vi.stubEnv('HTTP_PROXY', address);
      await ask('http://gateway.test');
      expect(through.requests.pop()).toEqual({ target: 'gateway.test:80', credentials });
    }
  });

  it('tunnels a request to an https target, and the certificate of the target is still checked', async () => {
    const server = await tlsServer(selfSigned({ hosts: ['gateway.test'] }));
    const through = await proxy(server.port);
    vi.stubEnv('HTTPS_PROXY', through.url);
    expect(await failure(open('https://gateway.test'))).toMatchObject({ reason: 'certificate' });
    expect(through.requests).toMatchObject([{ target: 'gateway.test:443' }]);
  });

  it('leaves the request unsent and is reported in the error if it refuses the tunnel', async () => {
    const refusing = await proxy(0, 407);
    vi.stubEnv('HTTPS_PROXY', refusing.url.replace('//', '//user:secret@'));
    const error = await failure(open('https://gateway.test'));
    expect(error).toMatchObject({ phase: 'unsent', reason: 'unreachable' });
    expect(error.message).toBe(
      `cannot reach gateway.test through the proxy ${refusing.url} (from HTTPS_PROXY): the proxy refused the tunnel with HTTP 407`,
    );
  });

  it.each<[string, (socket: Socket) => void]>([
    ['closes the connection', (socket) => socket.resetAndDestroy()],
    ['does not use HTTP', (socket) => socket.end('\u0005\u0000')],
    ['never responds', () => undefined],
    ['sends endless headers', (socket) => endless(socket)],
  ])('leaves the request unsent if it %s', async (_, answer) => {
    const odd = await tcpServer((socket) => void socket.once('data', () => answer(socket)));
    vi.stubEnv('HTTPS_PROXY', `http://127.0.0.1:${odd.port}`);
    expect(await failure(open('https://gateway.test', { timeoutMs: 200 }))).toMatchObject({
      phase: 'unsent',
    });
  });

  const unusable = ['socks5://127.0.0.1:9', 'http://u:p%zz@127.0.0.1:9', 'http://['];
  it.each(unusable)(
    'leaves the request unsent, and is not tried again, if it cannot be used: %s',
    async (address) => {
      vi.stubEnv('HTTPS_PROXY', address);
      const error = await failure(open('https://gateway.test'));
      expect(error).toMatchObject({ phase: 'unsent', reason: 'proxy', isPermanent: true });
      expect(error.message).toMatch(/^cannot reach gateway\.test: HTTPS_PROXY is /);
      expect(error.message).not.toContain('p%zz');
    },
  );

  it('has no effect on a host in NO_PROXY, even if it cannot be used', async () => {
    vi.stubEnv('HTTP_PROXY', 'socks5://127.0.0.1:9');
    vi.stubEnv('NO_PROXY', 'gateway.test');
    const error = await failure(open('http://gateway.test', { timeoutMs: 100 }));
    expect(error).toMatchObject({ reason: 'unreachable', isPermanent: false });
    expect(error.message).not.toContain('HTTP_PROXY');
  });

  it('is not used if its certificate is invalid, even with NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    const server = await tlsServer(selfSigned({ hosts: ['127.0.0.1', 'localhost', 'gateway.test'] }));
    vi.stubEnv('HTTPS_PROXY', `https://user:secret@127.0.0.1:${server.port}`);
    expect(await failure(open('https://gateway.test'))).toMatchObject({
      phase: 'unsent',
      reason: 'certificate',
    });
    expect(server.received).toEqual([]);
  });

  it('may return a response after the connect timeout', async () => {
    const server = await httpServer(
      (seen, response) => void setTimeout(() => says('{}')(seen, response), 1200),
    );
    vi.stubEnv('HTTP_PROXY', (await proxy(server.port)).url);
    expect(await ask('http://gateway.test', 1000)).toMatchObject({ status: 200 });
  });

  it('causes no crash if its tunnel breaks before it is used', async () => {
    const through = await tcpServer((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        setTimeout(() => socket.resetAndDestroy(), 10);
      });
    });
    vi.stubEnv('HTTP_PROXY', `http://127.0.0.1:${through.port}`);
    const socket = await open('http://gateway.test');
    await expect.poll(() => socket.destroyed).toBe(true);
  });

  it('is never used for loopback', async () => {
    const server = await httpServer(says('{}'));
    const through = await proxy(server.port);
    vi.stubEnv('HTTP_PROXY', through.url);
    for (const host of ['127.0.0.1', 'localhost']) await ask(`http://${host}:${server.port}`);
    expect(through.requests).toEqual([]);
    expect(server.requests).toHaveLength(2);
  });

  it.each(['gateway.test', '*', '.test', 'other.example,gateway.test:80'])(
    'is skipped according to NO_PROXY=%s',
    async (value) => {
      const through = await proxy(0);
      vi.stubEnv('HTTP_PROXY', through.url);
      vi.stubEnv('NO_PROXY', value);
      await failure(open('http://gateway.test', { timeoutMs: 100 }));
      expect(through.requests).toEqual([]);
    },
  );
});

function endless(socket: Socket): void {
  const go = (): void => {
    while (socket.writable && socket.write(`x: ${'y'.repeat(500)}\r\n`));
    if (socket.writable) socket.once('drain', go);
  };
  socket.write('HTTP/1.1 200 OK\r\n');
  go();
}

describe('an address in a response', () => {
  const within = { within: new URL('https://gateway.example') };
  const nowhere = [{ address: '192.0.2.1', family: 4 }];
  const here = [{ address: '127.0.0.1', family: 4 }];
  const office = [{ address: '10.1.2.3', family: 4 }];

  it.each(['127.0.0.1', '[::ffff:127.0.0.1]', '169.254.169.254', '0x7f.1', 'localhost'])(
    'is refused before any connection: %s',
    async (host) => {
      names.set('gateway.example', [{ address: '1.1.1.1', family: 4 }]);
      const server = await tcpServer(() => undefined);
      const error = await failure(open(`http://${host}:${server.port}`, within));
      expect(error).toMatchObject({ phase: 'unsent', reason: 'private_address' });
      expect(server.connections).toBe(0);
    },
  );

  it.each<[string, { address: string; family: number }[]]>([
    ['private', here],
    ['private IPv4 addresses inside IPv6', [{ address: '::ffff:127.0.0.1', family: 6 }]],
    ['link-local', [{ address: 'fe80::1%eth0', family: 6 }]],
    ['public and private', [{ address: '1.1.1.1', family: 4 }, ...here]],
  ])('is refused after DNS resolution if the resolved addresses are %s', async (_, addresses) => {
    names.set('gateway.example', nowhere);
    names.set('files.example', addresses);
    const server = await tcpServer(() => undefined);
    const error = await failure(open(`http://files.example:${server.port}`, within));
    expect(error).toMatchObject({ phase: 'unsent', reason: 'private_address' });
    expect(server.connections).toBe(0);
  });

  it('is allowed if it is the host of the base URL or has the same reach as the base URL', async () => {
    names.set('gateway.example', here);
    names.set('files.example', here);
    const server = await tcpServer(() => undefined);
    for (const host of ['gateway.example', 'files.example', '127.0.0.1', 'localhost'])
      await open(`http://${host}:${server.port}`, within);
    expect(server.connections).toBe(4);
  });

  it('is refused if it is more private than the base URL', async () => {
    names.set('gateway.example', office);
    names.set('files.example', here);
    const server = await tcpServer(() => undefined);
    expect(await failure(open(`http://files.example:${server.port}`, within))).toMatchObject({
      reason: 'private_address',
    });
    expect(server.connections).toBe(0);
  });

  it('is not checked unless a check is requested', async () => {
    const server = await tcpServer(() => undefined);
    await open(`http://localhost:${server.port}`);
    expect(server.connections).toBe(1);
  });
});

it('nothing was sent if the HTTP library could not be loaded', async () => {
  vi.doMock('../../src/http/undici.ts', () => Promise.reject(new Error('ENOENT')));
  const client = createClient({ baseUrl: new URL('http://127.0.0.1:9'), key: 'k', userAgent: 'test' });
  const post = { method: 'POST', path: '/', headers: {}, body: '' } as const;
  const call = { auth: bearer, timeoutMs: 2000, onConnected: (): Promise<void> => Promise.resolve() };
  const error = await failure(
    client.exchange(post, call).finally(() => vi.doUnmock('../../src/http/undici.ts')),
  );
  expect(error.phase).toBe('unsent');
});

it.each<[string, boolean]>([
  ['localhost', true],
  ['a.localhost', true],
  ['127.0.0.1', true],
  ['127.255.0.1', true],
  ['::1', true],
  ['127.example.com', false],
  ['127.0.0.1.example.com', false],
  ['notlocalhost', false],
  ['10.0.0.1', false],
  ['::2', false],
])('isLoopback(%s) returns %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected);
});
