import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { until } from './until.ts';

/** A server that listens but serves nothing. */
export interface Blackhole {
  url: string;
  /** Returns the number of connections so far. */
  connections(): number;
  stop(): Promise<void>;
}

/**
 * Opens a port whose backlog is full and whose server accepts nothing. Connections to it never open on either side, as
 * if a firewall dropped the packets.
 */
export async function fullBacklog(host: string): Promise<Blackhole> {
  const worker = new Worker(
    `const { parentPort, workerData } = require('node:worker_threads');
     const server = require('node:net').createServer();
     server.listen({ host: workerData, port: 0, backlog: 1 }, () => {
       parentPort.postMessage(server.address().port);
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
     });`,
    { eval: true, workerData: host },
  );
  const [port] = (await once(worker, 'message')) as [number];
  const fill = Array.from({ length: 8 }, () => connect(port, host).on('error', () => undefined));
  await until(() => fill.filter(({ connecting }) => !connecting).length >= 2);
  return {
    url: `http://${host}:${port}`,
    connections: () => 0,
    stop: async () => {
      for (const socket of fill) socket.destroy();
      await worker.terminate();
    },
  };
}

/** Starts a server that resets each connection once a byte has arrived, without reading it. */
export async function resetsUnread(host: string): Promise<Blackhole> {
  let connections = 0;
  const server: Server = createServer({ pauseOnConnect: true }, (socket) => {
    connections += 1;
    void until(() => unread(socket) > 0).then(() => socket.resetAndDestroy());
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return {
    url: `http://${host}:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    stop: async () => {
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

// Returns the size of a connection's receive queue in the kernel, in bytes: the second half of the fifth column.
function unread({ localPort, remotePort }: Socket): number {
  const [local, remote] = [localPort, remotePort].map((port) => `:${hex(port)}`);
  const line = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((text) => text.trim().split(/\s+/))
    .find(([, here, there]) => here?.endsWith(local ?? '-') && there?.endsWith(remote ?? '-'));
  return Number.parseInt(line?.[4]?.split(':')[1] ?? '0', 16);
}

function hex(port = 0): string {
  return port.toString(16).toUpperCase().padStart(4, '0');
}
