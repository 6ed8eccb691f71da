import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { Certificate } from './certificates.ts';

/** A received request with its parsed head. */
export interface RawRequest {
  method: string;
  path: string;
  /** The headers, by lower-case name. */
  headers: Record<string, string>;
}

/** Responds to a request with raw bytes, and closes the connection. */
export type Answer = (request: RawRequest, socket: Socket) => void;

/** A raw server on loopback that sends exactly the bytes given by the test, valid or not. */
export class RawServer {
  readonly requests: RawRequest[] = [];
  /** The number of connections so far. */
  connections = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(answer: Answer, certificate?: Certificate) {
    const greet = (socket: Socket): void => {
      this.#sockets.add(socket);
      this.connections += 1;
      socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket));
      let head = '';
      socket.on('data', (bytes) => {
        head += bytes.toString('latin1');
        if (!head.includes('\r\n\r\n')) return;
        const request = parsed(head);
        head = '';
        this.requests.push(request);
        answer(request, socket);
      });
    };
    this.#server = certificate ? createTlsServer(certificate, greet) : createServer(greet);
    this.#server.on('tlsClientError', () => undefined);
  }

  /** Starts a server. The server uses TLS if `certificate` is given. */
  static async start(answer: Answer, host = '127.0.0.1', certificate?: Certificate): Promise<RawServer> {
    const server = new RawServer(answer, certificate);
    await new Promise<void>((resolve) => server.#server.listen(0, host, resolve));
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  url(path = '/film.mp4', host = '127.0.0.1'): string {
    return `http://${host}:${this.port}${path}`;
  }

  /** Returns a header's value in each request so far, or '' if the request did not have the header. */
  header(name: string): string[] {
    return this.requests.map(({ headers }) => headers[name] ?? '');
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

function parsed(text: string): RawRequest {
  const [first = '', ...lines] = text.split('\r\n\r\n')[0]?.split('\r\n') ?? [];
  const [method = '', path = ''] = first.split(' ');
  const headers = lines.map((line): [string, string] => {
    const at = line.indexOf(':');
    return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
  });
  return { method, path, headers: Object.fromEntries(headers) };
}

/** Returns a response head. */
export function head(status: string, headers: Record<string, string | number> = {}): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status}\r\n${lines.join('')}\r\n`;
}

/** Sends a complete response and closes the connection. */
export function say(
  socket: Socket,
  status: string,
  headers: Record<string, string | number>,
  body: string | Buffer = '',
): void {
  socket.write(head(status, headers));
  socket.end(body);
}

/** How a correct file host serves one representation. */
export interface Served {
  content: Buffer;
  etag?: string;
  lastModified?: string;
  /** Whether the host supports `Range`. Default: true. */
  ranges?: boolean;
  /** The offset in the whole file at which the host closes the connection, if the response reaches it. */
  cutAt?: number;
  type?: string;
}

/** Serves a file according to RFC 9110, with ranges and preconditions. Returns the number of bytes sent. */
export function serve(request: RawRequest, socket: Socket, served: Served): number {
  const { content, etag, lastModified, ranges = true, type = 'video/mp4' } = served;
  const about = {
    'content-type': type,
    date: new Date().toUTCString(),
    ...(etag !== undefined && { etag }),
    ...(lastModified !== undefined && { 'last-modified': lastModified }),
  };
  const isSame =
    request.headers['if-range'] === undefined || [etag, lastModified].includes(request.headers['if-range']);
  const from = ranges && isSame ? Number(/^bytes=(\d+)-$/.exec(request.headers['range'] ?? '')?.[1] ?? 0) : 0;
  if (from >= content.length && from > 0) {
    say(socket, '416 Range Not Satisfiable', {
      ...about,
      'content-range': `bytes */${content.length}`,
      'content-length': 0,
    });
    return 0;
  }
  const end = Math.max(from, Math.min(served.cutAt ?? Infinity, content.length));
  const length = { 'content-length': content.length - from };
  const range = { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` };
  socket.write(
    from > 0
      ? head('206 Partial Content', { ...about, ...range, ...length })
      : head('200 OK', { ...about, ...length }),
  );
  socket.end(content.subarray(from, end));
  return end - from;
}
