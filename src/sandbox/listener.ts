import { once } from 'node:events';
import {
  type IncomingMessage,
  type ServerResponse,
  createServer,
  type IncomingHttpHeaders,
  type Server,
} from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { gatewayError, type Reply } from './exchange.ts';
import type { AddressInfo } from 'node:net';

/** A request. `path` and `query` are percent-encoded. */
export interface Request {
  method: string;
  path: string;
  query: string;
  message: IncomingMessage;
}

/**
 * Listens on 127.0.0.1 (port 0 chooses a free port) and responds to each request with the result of `handle`. Responds
 * with HTTP 403 to requests from web pages or with a foreign host name, and with HTTP 500 if `handle` throws. Rejects
 * with the system's error if the port is in use. With `unref`, the server does not keep the process running.
 */
export function listen(
  port: number,
  handle: (request: Request) => Promise<Reply>,
  options: { unref?: boolean | undefined } = {},
): Promise<Listener> {
  return listenOnLoopback(
    port,
    (message, response, origin) => void serve(message, response, origin, handle),
    options,
  );
}

async function serve(
  message: IncomingMessage,
  response: ServerResponse,
  origin: string,
  handle: (request: Request) => Promise<Reply>,
): Promise<void> {
  const reply = isForeign(message.headers, origin)
    ? gatewayError(
        403,
        'The sandbox accepts requests only from programs on this machine, and only to its own address.',
      )
    : await handle(requestOf(message)).catch(crashReply);
  await sendReply(message, response, reply).catch(() => response.destroy());
}

function requestOf(message: IncomingMessage): Request {
  const target = message.url ?? '/';
  const separator = target.indexOf('?');
  const [path, query] =
    separator < 0 ? [target, ''] : [target.slice(0, separator), target.slice(separator + 1)];
  return { method: message.method ?? 'GET', path, query, message };
}

function crashReply(error: unknown): Reply {
  const message = error instanceof Error ? error.message : String(error);
  return gatewayError(500, `The sandbox failed: ${message}`, { code: 'sandbox_error' });
}

/**
 * The number of bytes to write at a time. With small pieces, the sandbox knows how many bytes were sent when a client
 * disconnects.
 */
const pieceBytes = 64 * 1024;

/** How much of a body has been written to the network. */
interface Progress {
  bytes: number;
  isComplete: boolean;
}

/**
 * Sends a response, and breaks or stalls it if the response so specifies. Resolves when the response has been sent or
 * broken, or the client has disconnected. Rejects if a streamed body throws.
 */
async function sendReply(message: IncomingMessage, response: ServerResponse, reply: Reply): Promise<void> {
  const disconnect = new AbortController();
  response.once('close', () => disconnect.abort());
  if (reply.delayMs !== undefined)
    await ignoreDisconnect(sleep(reply.delayMs, undefined, { signal: disconnect.signal }));
  const progress: Progress = { bytes: 0, isComplete: false };
  try {
    if (reply.cutAt === -1 || disconnect.signal.aborted) return;
    response.writeHead(reply.status, headOf(reply));
    if (message.method === 'HEAD') return void response.end();
    await sendBody(response, reply, disconnect.signal, progress);
  } finally {
    if (!progress.isComplete && !response.writableEnded) response.destroy();
    if (message.method !== 'HEAD') reply.onEnd?.(progress.bytes, progress.isComplete);
  }
}

function headOf({ headers, body }: Reply): Record<string, string> {
  const isStream = typeof body !== 'string' && !(body instanceof Uint8Array);
  return isStream ? headers : { ...headers, 'Content-Length': String(Buffer.byteLength(body)) };
}

async function sendBody(
  response: ServerResponse,
  { body, cutAt, stallAt }: Reply,
  disconnectSignal: AbortSignal,
  progress: Progress,
): Promise<void> {
  const end = cutAt ?? stallAt ?? Infinity;
  let lastWrite: Promise<unknown> = Promise.resolve();
  for await (const piece of piecesOf(body)) {
    if (disconnectSignal.aborted) return;
    const sentPart = piece.subarray(0, end - progress.bytes);
    progress.bytes += sentPart.length;
    let hasRoom = true;
    lastWrite = new Promise((resolve) => (hasRoom = response.write(sentPart, resolve)));
    if (!hasRoom) await ignoreDisconnect(once(response, 'drain', { signal: disconnectSignal }));
    if (progress.bytes === end) break;
  }
  if (stallAt !== undefined && !disconnectSignal.aborted) await once(disconnectSignal, 'abort');
  // Wait until the bytes before the break have been sent.
  if (cutAt !== undefined) await lastWrite;
  if (stallAt !== undefined || cutAt !== undefined) return;
  response.end();
  await ignoreDisconnect(once(response, 'finish', { signal: disconnectSignal }));
  progress.isComplete = response.writableFinished;
}

async function* piecesOf(body: Reply['body']): AsyncGenerator<Uint8Array> {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    yield* body;
    return;
  }
  const bytes = Buffer.from(body);
  for (let start = 0; start < bytes.length; start += pieceBytes)
    yield bytes.subarray(start, start + pieceBytes);
}

/** Waits for a promise, and ignores its rejection, which means only that the client has disconnected. */
async function ignoreDisconnect(promise: Promise<unknown>): Promise<void> {
  await promise.catch(() => undefined);
}

export type { IncomingMessage, ServerResponse } from 'node:http';

/** A server on loopback that is ready for requests. */
export interface Listener {
  /** The server's origin, `http://127.0.0.1:PORT`. */
  origin: string;
  /** Closes every connection immediately, and resolves when the port is free. */
  close(): Promise<void>;
}

/**
 * Listens on 127.0.0.1 (port 0 chooses a free port). Rejects with the system's error if the port is in use. With
 * `unref`, the server does not keep the process running.
 */
export async function listenOnLoopback(
  port: number,
  respond: (message: IncomingMessage, response: ServerResponse, origin: string) => void,
  { unref = false } = {},
): Promise<Listener> {
  const server = createServer({ requestTimeout: 60_000 });
  await once(server.listen(port, '127.0.0.1'), 'listening');
  if (unref) server.unref().on('connection', (socket) => socket.unref());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  server.on('request', (message, response) => respond(message, response, origin));
  return { origin, close: () => stop(server) };
}

function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/**
 * Whether a request comes from a web page of another origin, or uses a foreign host name (DNS rebinding). Such a page
 * must not be able to cause charges or read results. Requests from the address bar and from the browser's player
 * (`same-origin`) are allowed. `origin` is `http://127.0.0.1:PORT`.
 */
export function isForeign(headers: IncomingHttpHeaders, origin: string): boolean {
  const site = headers['sec-fetch-site'] ?? 'none';
  return (
    !ownHosts(origin).includes((headers.host ?? '').toLowerCase()) ||
    (headers.origin ?? origin) !== origin ||
    !['none', 'same-origin'].includes(site)
  );
}

/** Returns the allowed values of `Host`. Clients omit port 80. */
function ownHosts(origin: string): string[] {
  const port = new URL(origin).port || '80';
  return ['127.0.0.1', 'localhost'].flatMap((name) => [`${name}:${port}`, ...(port === '80' ? [name] : [])]);
}

/** A byte range in a file. */
interface Span {
  start: number;
  /** The offset after the last byte. */
  end: number;
}

/**
 * Parses a `Range` header (RFC 9110 section 14). Returns the range; `whole` if the header is absent, malformed or
 * contains several ranges; `beyond` if the range contains no byte of the file.
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
