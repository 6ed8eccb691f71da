import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A request as the gateway saw it. */
export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
  at: number;
}

/** An answer of a script: a status with a body, or a function that does what it likes with the connection. */
export type Answer =
  | { status?: number; body?: unknown; headers?: Record<string, string> }
  | ((request: Seen, response: ServerResponse) => void);

/** A gateway that speaks Protocol C by the specification, and can be told to answer otherwise. */
export interface GatewayC {
  url: string;
  requests: Seen[];
  /** How many tasks were created. */
  created: number;
  posts(): Seen[];
  /** Answers of the next submissions; then it goes on as usual. */
  submits: Answer[];
  /** Answers of the next queries. */
  queries: Answer[];
  /** Answers of the next content requests. */
  contents: Answer[];
  /** Polls until a task is finished. */
  polls: number;
  video: Buffer;
  close(): Promise<void>;
}

/** A small file with whole MP4 boxes. */
export function fakeMp4(bytes = 4096): Buffer {
  const ftyp = Buffer.from('00000018667479706d703432000000006d70343269736f6d', 'hex');
  const mdat = Buffer.alloc(bytes, 'x');
  mdat.writeUInt32BE(bytes, 0);
  mdat.write('mdat', 4, 'latin1');
  const moov = Buffer.alloc(8);
  moov.writeUInt32BE(8, 0);
  moov.write('moov', 4, 'latin1');
  return Buffer.concat([ftyp, moov, mdat]);
}

/** Starts the gateway on loopback. */
export async function startGatewayC(): Promise<GatewayC> {
  const tasks = new Map<string, number>();
  const server = createServer((request, response) => void handle(request, response));
  const gateway: GatewayC = {
    url: '',
    requests: [],
    created: 0,
    posts: () => gateway.requests.filter(({ method }) => method === 'POST'),
    submits: [],
    queries: [],
    contents: [],
    polls: 1,
    video: fakeMp4(),
    close: () => closed(server),
  };
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const seen = await read(request);
    gateway.requests.push(seen);
    const scripted = scriptFor(gateway, seen).shift();
    if (typeof scripted === 'function') {
      scripted(seen, response);
      return;
    }
    if (scripted !== undefined) {
      reply(response, scripted);
      return;
    }
    usual(gateway, tasks, seen, response);
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  gateway.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return gateway;
}

function scriptFor(gateway: GatewayC, seen: Seen): Answer[] {
  if (seen.method === 'POST') return gateway.submits;
  return seen.path.endsWith('/content') ? gateway.contents : gateway.queries;
}

/** Creates a task as an accepted submission does; for scripted answers. */
export function create(gateway: GatewayC): string {
  gateway.created += 1;
  return `task_${String(gateway.created).padStart(4, '0')}`;
}

function usual(gateway: GatewayC, tasks: Map<string, number>, seen: Seen, response: ServerResponse): void {
  if (seen.method === 'POST') {
    reply(response, { body: { task_id: create(gateway), status: 'queued' } });
    return;
  }
  if (seen.path.endsWith('/content')) {
    response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': gateway.video.length });
    return void response.end(gateway.video);
  }
  const id = seen.path.split('/').pop() ?? '';
  const polls = (tasks.get(id) ?? 0) + 1;
  tasks.set(id, polls);
  reply(response, { body: { task_id: id, status: polls > gateway.polls ? 'completed' : 'in_progress' } });
}

function reply(response: ServerResponse, answer: Exclude<Answer, (...args: never) => void>): void {
  const text = typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body ?? {});
  response.writeHead(answer.status ?? 200, { 'content-type': 'application/json', ...answer.headers });
  response.end(text);
}

async function read(request: IncomingMessage): Promise<Seen> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const { method = '', url = '', headers } = request;
  return { method, path: url, headers, body: Buffer.concat(chunks).toString(), at: Date.now() };
}

function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
