import type * as nodeDns from 'node:dns';
import { connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import type * as nodeTls from 'node:tls';
import { getProxyForUrl } from 'proxy-from-env';
import { systemCode } from '../errors.ts';
import { isLoopbackHost } from '../loopback.ts';
import { isPrivateAddress } from './private-host.ts';
import { startDeadline } from './deadline.ts';
import { TransportError } from './transport-error.ts';

/** How a connection is made. */
export interface ConnectOptions {
  /** Until the connection stands, TLS included, ms. */
  timeoutMs: number;
  /** True refuses loopback, private and link-local addresses, also those that DNS gives. */
  publicOnly?: boolean;
  signal?: AbortSignal;
  /** Ends it like `signal`. */
  connectSignal?: AbortSignal;
}

/** A URL's host without the brackets of IPv6. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** True where a host, without the brackets of IPv6, is this machine's loopback, by name or by address. */
export function isLoopback(host: string): boolean {
  return host === '::1' || host.endsWith('.localhost') || isLoopbackHost(host);
}

/**
 * Opens a connection on which the first byte can be sent: TCP, through the environment's proxy where one is set
 * (never for loopback), with TLS verified for https.
 * @throws TransportError with phase `unsent`: no byte of a request was sent; `sent` where a plain connection was
 * accepted and reset at once.
 */
export async function connect(url: URL, options: ConnectOptions): Promise<Socket> {
  const deadline = startDeadline(options.timeoutMs, [options.signal, options.connectSignal]);
  try {
    // Loaded where it is needed: TLS costs as much of a start as all of mgw. Before the connection, which must not wait.
    const tls = url.protocol === 'https:' ? await import('node:tls') : undefined;
    const socket = await openTcp(url, options, deadline.signal);
    return tls ? await secure(tls, socket, hostOf(url), deadline.signal) : socket;
  } catch (error) {
    throw TransportError.unsent(deadline.passed ? timedOut(url, options.timeoutMs) : error, url);
  } finally {
    deadline.end();
  }
}

function timedOut(url: URL, timeoutMs: number): Error {
  return new Error(`no connection to ${url.host} within ${timeoutMs / 1000} s`);
}

async function openTcp(url: URL, options: ConnectOptions, signal: AbortSignal): Promise<Socket> {
  const host = hostOf(url);
  if (options.publicOnly && isPrivateAddress(host)) throw forbidden(host);
  const proxy = isLoopback(host) ? '' : getProxyForUrl(url.href);
  if (proxy !== '') {
    const { openTunnel } = await import('./tunnel.ts');
    return openTunnel(new URL(proxy), `${url.hostname}:${portOf(url)}`, signal);
  }
  const lookup = options.publicOnly ? publicLookup((await import('node:dns')).lookup) : undefined;
  const socket = connectTcp({ host, port: portOf(url), lookup, noDelay: true });
  return standing(socket, 'connect', signal).catch((error: unknown) => {
    throw url.protocol === 'http:' && wasReset(error) ? TransportError.sent(error, url) : error;
  });
}

// Only a connection that was accepted can be reset. Whether the system tells so here or behind the first byte is
// chance, and an outcome must not be.
function wasReset(error: unknown): boolean {
  return systemCode(error) === 'ECONNRESET';
}

function portOf(url: URL): number {
  return Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
}

function forbidden(address: string): Error {
  return Object.assign(new Error(`${address} is a private address, and the base URL is not`), {
    code: 'MGW_PRIVATE',
  });
}

// The check stands behind DNS, so that a public name cannot lead to a private address.
function publicLookup(lookup: typeof nodeDns.lookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      const bad = addresses?.find(({ address }) => isPrivateAddress(address));
      if (error) callback(error, []);
      else if (bad) callback(forbidden(bad.address), []);
      else if (options.all) callback(null, addresses);
      else callback(null, addresses[0]?.address ?? '', addresses[0]?.family);
    });
  };
}

// rejectUnauthorized stands here in so many words, so that NODE_TLS_REJECT_UNAUTHORIZED cannot turn it off.
function secure(tls: typeof nodeTls, socket: Socket, host: string, signal: AbortSignal): Promise<Socket> {
  const servername = isIP(host) ? '' : host;
  const options = { socket, host, servername, ALPNProtocols: ['http/1.1'], rejectUnauthorized: true };
  return standing(tls.connect(options), 'secureConnect', signal);
}

function standing(socket: Socket, event: 'connect' | 'secureConnect', signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown): void => {
      socket.destroy();
      reject(error instanceof Error ? error : new Error(String(error)));
    };
    const aborted = (): void => fail(signal.reason);
    const closed = (): void => fail(new Error('the connection was closed before it stood'));
    signal.addEventListener('abort', aborted, { once: true });
    socket.once('error', fail).once('close', closed);
    socket.once(event, () => {
      signal.removeEventListener('abort', aborted);
      socket.off('error', fail).off('close', closed);
      // Until a request takes the socket over, its errors show only as `destroyed`.
      socket.on('error', () => undefined);
      resolve(socket);
    });
    if (signal.aborted) aborted();
  });
}
