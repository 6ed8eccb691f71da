import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
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
 * Listens on 127.0.0.1 (port 0 chooses a free one). Rejects with the system's error where the port cannot be had. With
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
