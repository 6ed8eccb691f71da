import { lookup } from 'node:dns';
import { request as httpRequest, type ClientRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { BlockList, connect as connectTcp, isIP, type LookupFunction, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { getProxyForUrl } from 'proxy-from-env';
import { TransportError } from './transport-error.ts';

/** How a connection is made. */
export interface ConnectOptions {
  /** Until the connection stands, TLS included, ms. */
  timeoutMs: number;
  /** True refuses loopback, private and link-local addresses, also those that DNS gives. */
  publicOnly?: boolean;
  signal?: AbortSignal;
}

const privateRanges = new BlockList();
for (const [net, prefix] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['224.0.0.0', 3],
] as const)
  privateRanges.addSubnet(net, prefix, 'ipv4');
for (const [net, prefix] of [
  ['::', 127],
  ['64:ff9b::', 96],
  ['fc00::', 7],
  ['fe80::', 10],
  ['ff00::', 8],
] as const)
  privateRanges.addSubnet(net, prefix, 'ipv6');

/** True for an address literal that is loopback, private, link-local or otherwise not public. */
export function isPrivateAddress(address: string): boolean {
  const family = isIP(address);
  return family !== 0 && privateRanges.check(address, family === 6 ? 'ipv6' : 'ipv4');
}

/** A URL's host without the brackets of IPv6. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** True where a host is this machine's loopback, by name or by address. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost') || host === '::1' || /^127\./.test(host);
}

/**
 * Opens a connection on which the first byte can be sent: TCP, through the environment's proxy where one is set
 * (never for loopback), with TLS verified for https.
 * @throws TransportError with phase `unsent`: no byte of a request was sent.
 */
export async function connect(url: URL, options: ConnectOptions): Promise<Socket> {
  const timeout = AbortSignal.timeout(options.timeoutMs);
  const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  try {
    const socket = await openTcp(url, options, signal);
    return url.protocol === 'https:' ? await secure(socket, hostOf(url), signal) : socket;
  } catch (error) {
    throw TransportError.unsent(timeout.aborted ? timedOut(url, options.timeoutMs) : error, url);
  }
}

function timedOut(url: URL, timeoutMs: number): Error {
  return new Error(`no connection to ${url.host} within ${timeoutMs / 1000} s`);
}

async function openTcp(url: URL, options: ConnectOptions, signal: AbortSignal): Promise<Socket> {
  const host = hostOf(url);
  if (options.publicOnly && isPrivateAddress(host)) throw forbidden(host);
  const proxy = isLoopback(host) ? '' : getProxyForUrl(url.href);
  if (proxy !== '') return openTunnel(new URL(proxy), url, signal);
  const socket = connectTcp({
    host,
    port: portOf(url),
    lookup: options.publicOnly ? publicLookup : undefined,
    noDelay: true,
  });
  return standing(socket, 'connect', signal);
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
const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    const bad = addresses?.find(({ address }) => isPrivateAddress(address));
    if (error) callback(error, []);
    else if (bad) callback(forbidden(bad.address), []);
    else if (options.all) callback(null, addresses);
    else callback(null, addresses[0]?.address ?? '', addresses[0]?.family);
  });
};

async function openTunnel(proxy: URL, target: URL, signal: AbortSignal): Promise<Socket> {
  const authority = `${target.hostname}:${portOf(target)}`;
  const credentials = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const request = (proxy.protocol === 'https:' ? httpsRequest : httpRequest)({
    host: hostOf(proxy),
    port: portOf(proxy),
    method: 'CONNECT',
    path: authority,
    agent: false,
    signal,
    headers: {
      host: authority,
      ...(proxy.username && {
        'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}`,
      }),
    },
  });
  return tunnelled(request, proxy);
}

function tunnelled(request: ClientRequest, proxy: URL): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const refuse = (status: number | undefined): void =>
      reject(new Error(`the proxy ${proxy.host} refused the tunnel with HTTP ${status ?? 'nothing'}`));
    request.once('error', reject);
    request.once('response', (response) => {
      response.destroy();
      refuse(response.statusCode);
    });
    request.once('connect', (response, socket) => {
      if (response.statusCode === 200) resolve(socket as Socket);
      else (socket.destroy(), refuse(response.statusCode));
    });
    request.end();
  });
}

// rejectUnauthorized stands here in so many words, so that NODE_TLS_REJECT_UNAUTHORIZED cannot turn it off.
function secure(socket: Socket, host: string, signal: AbortSignal): Promise<Socket> {
  const servername = isIP(host) ? '' : host;
  const tls = connectTls({ socket, host, servername, ALPNProtocols: ['http/1.1'], rejectUnauthorized: true });
  return standing(tls, 'secureConnect', signal);
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
