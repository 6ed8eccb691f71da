import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as the origin received it. */
export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
  at: number;
}

/** A scripted response: a status with a body, or a function that controls the connection. */
export type Answer =
  | { status?: number; body?: unknown; headers?: Record<string, string> }
  | ((request: Seen, response: ServerResponse) => void);

/** A listening origin, and all requests that it has received. */
export interface Origin {
  url: string;
  requests: Seen[];
  close(): Promise<void>;
}

/** Responds to a request. If the handler throws, the origin responds with 500, so the test reveals the error. */
export type Handler = (seen: Seen, response: ServerResponse) => void | Promise<void>;

/** Starts an origin on a loopback address. A client treats 127.0.0.2 and 127.0.0.1 as different hosts. */
export async function listen(handle: Handler, host = '127.0.0.1'): Promise<Origin> {
  const requests: Seen[] = [];
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const seen = await read(request);
    requests.push(seen);
    response.on('error', () => undefined);
    await handle(seen, response);
  };
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return {
    url: `http://${host}:${(server.address() as AddressInfo).port}`,
    requests,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

async function read(request: IncomingMessage): Promise<Seen> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const { method = '', url = '', headers } = request;
  return { method, path: url, headers, body: Buffer.concat(chunks).toString(), at: Date.now() };
}

/** Sends a scripted response. */
export function play(answer: Answer, seen: Seen, response: ServerResponse): void {
  if (typeof answer === 'function') {
    answer(seen, response);
    return;
  }
  json(response, answer.body ?? {}, answer.status, answer.headers);
}

/** Responds with `body`: a string is sent unchanged, any other value as JSON. */
export function json(
  response: ServerResponse,
  body: unknown,
  status = 200,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}

/** A server that serves one video at any path, or scripted responses. */
export interface FileHost extends Origin {
  /** The responses to the next requests. Further requests receive the video. */
  answers: Answer[];
  /** If set, requests without this Authorization header receive 401. */
  wants?: string;
}

/** Starts a file host. By default it requires no key. */
export async function startFileHost(video: Buffer, host?: string): Promise<FileHost> {
  const origin = await listen((seen, response) => {
    const scripted = files.answers.shift();
    if (scripted !== undefined) {
      play(scripted, seen, response);
      return;
    }
    if (files.wants !== undefined && seen.headers.authorization !== files.wants) {
      json(response, { error: { code: 401, message: 'no key' } }, 401);
      return;
    }
    response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': video.length });
    response.end(video);
  }, host);
  const files: FileHost = { ...origin, answers: [] };
  return files;
}
