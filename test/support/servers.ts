import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTcp, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onEnd } from './clean-ups.ts';

/** Creates a folder that is removed after the test, and returns its path. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-jobs-'));
  onEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A request as the server received it. */
export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

/** Responds to a request. */
export type Answer = (seen: Seen, response: ServerResponse) => void;

export interface HttpServer {
  url: string;
  port: number;
  requests: Seen[];
  /** The number of connections so far. */
  connections: number;
  /** The responses to the next requests. Further requests receive the usual response. */
  answers: Answer[];
  /** The number of tasks created so far. */
  created: number;
  /** Creates a task and returns its handle. */
  create(): string;
}

/** Starts an HTTP server. Its usual response creates a Protocol C task, unless `usual` is set. */
export async function httpServer(usual?: Answer, port = 0): Promise<HttpServer> {
  const state: HttpServer = {
    url: '',
    port: 0,
    requests: [],
    connections: 0,
    answers: [],
    created: 0,
    create: () => `task_${String((state.created += 1)).padStart(4, '0')}`,
  };
  const server = createHttp((request, response) => {
    const chunks: Buffer[] = [];
    request.on('error', () => undefined);
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { method = '', url = '', headers } = request;
      const seen = { method, path: url, headers, body: Buffer.concat(chunks).toString() };
      state.requests.push(seen);
      const answer = state.answers.shift() ?? usual ?? accepts(state);
      answer(seen, response);
    });
  });
  server.on('connection', () => (state.connections += 1));
  state.port = await listening(server, port);
  state.url = `http://127.0.0.1:${state.port}`;
  onEnd(() => {
    server.closeAllConnections();
    return closed(server);
  });
  return state;
}

function accepts(state: HttpServer): Answer {
  return (_, response) => sendJson(response, { task_id: state.create(), status: 'queued' });
}

export function sendJson(
  response: ServerResponse,
  body: unknown,
  status = 200,
  headers: Record<string, string | string[]> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}

/** Returns a fixed response. */
export function says(body: unknown, status = 200, headers: Record<string, string | string[]> = {}): Answer {
  return (_, response) => sendJson(response, body, status, headers);
}

export interface TcpServer {
  port: number;
  connections: number;
}

/** Starts a TCP server. */
export async function tcpServer(onConnection: (socket: Socket, count: number) => void): Promise<TcpServer> {
  const state = { port: 0, connections: 0 };
  const sockets = new Set<Socket>();
  const server = createTcp((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    onConnection(socket, (state.connections += 1));
  });
  state.port = await listening(server, 0);
  onEnd(() => {
    for (const socket of sockets) socket.destroy();
    return closed(server);
  });
  return state;
}

// Below the ports that a system assigns by itself, which another process could get at any time. Each test process has
// its own ports.
let nextClosedPort = 12_000 + (process.pid % 500) * 40;

/** Returns a port on which nothing listens, and on which the test may listen later. */
export async function closedPort(): Promise<number> {
  for (let attempt = 1; ; attempt += 1) {
    const server = createTcp();
    const port = (nextClosedPort += 1);
    try {
      await listening(server, port);
      await closed(server);
      return port;
    } catch (error) {
      if (attempt === 40) throw error;
    }
  }
}

async function listening(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => void server.close(() => resolve()));
}
