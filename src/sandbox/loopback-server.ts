import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';

export type { IncomingMessage, ServerResponse } from 'node:http';

/** A server on loopback that is ready to take requests. */
export interface Listener {
  /** `http://127.0.0.1:PORT`. */
  origin: string;
  /** Ends every connection at once, and resolves when the port is free again. */
  close(): Promise<void>;
}

/**
 * Listens on 127.0.0.1 (port 0 chooses a free one). Rejects with the system's error if the port is taken. With
 * `unref` it keeps no process alive.
 */
export async function listenOnLoopback(
  port: number,
  answer: (message: IncomingMessage, response: ServerResponse, origin: string) => void,
  { unref = false } = {},
): Promise<Listener> {
  const server = createServer({ requestTimeout: 60_000 });
  await start(server, port);
  if (unref) server.unref().on('connection', (socket) => socket.unref());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  server.on('request', (message, response) => answer(message, response, origin));
  return { origin, close: () => stop(server) };
}

function start(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/**
 * True if a request comes from a web page of another origin, or reached this server under a name that is not its
 * own (DNS rebinding): a page must not be able to run up a bill or read results. A browser itself may come: its
 * address bar, and its player, which asks for a file as `same-origin`. `origin` is `http://127.0.0.1:PORT`.
 */
export function isForeign(headers: IncomingHttpHeaders, origin: string): boolean {
  const site = headers['sec-fetch-site'] ?? 'none';
  return (
    !ownHosts(origin).includes((headers.host ?? '').toLowerCase()) ||
    (headers.origin ?? origin) !== origin ||
    !['none', 'same-origin'].includes(site)
  );
}

/** At port 80, clients leave the port out. */
function ownHosts(origin: string): string[] {
  const port = new URL(origin).port || '80';
  return ['127.0.0.1', 'localhost'].flatMap((name) => [`${name}:${port}`, ...(port === '80' ? [name] : [])]);
}

/** Part of a file, in bytes. */
export interface Span {
  start: number;
  /** The byte after the last one. */
  end: number;
}

/**
 * Reads a `Range` header (RFC 9110 section 14). Returns the one range that it asks for, `whole` if it is absent, malformed
 * or asks for several, and `beyond` if no byte of the file is in it.
 */
export function parseRange(header: string, total: number): Span | 'whole' | 'beyond' {
  const match = /^bytes=\s*(\d*)-(\d*)\s*$/.exec(header);
  const [first = '', last = ''] = match?.slice(1) ?? [];
  if (match === null || (first === '' && last === '')) return 'whole';
  if (first === '')
    return Number(last) === 0 ? 'beyond' : { start: Math.max(0, total - Number(last)), end: total };
  if (last !== '' && Number(last) < Number(first)) return 'whole';
  if (Number(first) >= total) return 'beyond';
  return { start: Number(first), end: last === '' ? total : Math.min(Number(last) + 1, total) };
}
