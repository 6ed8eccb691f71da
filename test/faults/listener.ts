import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTcp, type AddressInfo, type Socket } from 'node:net';
import { createServer as createTls } from 'node:tls';
import type { Certificate } from '../support/certificates.ts';

/** Handles a TCP connection before anything is read from it. Returns true to hide the connection from the server. */
export type OnTcp = (socket: Socket) => boolean | undefined;

/** Options of a {@link Listener}. */
export interface ListenerOptions {
  /** An address in 127.0.0.0/8 (default: 127.0.0.1). */
  host?: string;
  tls?: Certificate;
  /** Faults of the next connections, in order. Later connections are served as usual. */
  onTcp?: OnTcp[];
  answer: (request: IncomingMessage, response: ServerResponse) => void;
}

/** A server on loopback that can be controlled below HTTP and below TLS. */
export interface Listener {
  port: number;
  /** `https://localhost:PORT` with TLS, else `http://HOST:PORT`. */
  origin: string;
  /** All TCP connections so far, oldest first. */
  connections: Socket[];
  /** Breaks every connection, and refuses new ones until {@link start}. */
  stop(): Promise<void>;
  /** Listens again on the same port. */
  start(): Promise<void>;
}

/** Starts a listener for HTTP, over TLS if a certificate is given. */
export async function listen(options: ListenerOptions): Promise<Listener> {
  const { host = '127.0.0.1', tls, onTcp = [] } = options;
  const http = createHttp(options.answer);
  http.on('clientError', (_, socket) => socket.destroy());
  const secure = tls && createTls(tls, (socket) => http.emit('connection', socket));
  secure?.on('tlsClientError', () => undefined);
  const connections: Socket[] = [];
  const server = createTcp((socket) => {
    socket.on('error', () => undefined);
    connections.push(socket);
    const isHandled = onTcp.shift()?.(socket) ?? false;
    if (!isHandled) (secure ?? http).emit('connection', socket);
  });
  const start = (port: number): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once('error', reject).listen(port, host, resolve);
    });
  await start(0);
  const { port } = server.address() as AddressInfo;
  return {
    port,
    origin: tls ? `https://localhost:${port}` : `http://${host}:${port}`,
    connections,
    start: () => start(port),
    stop: async () => {
      for (const socket of connections) socket.destroy();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
}
