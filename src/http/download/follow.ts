import { MgwError } from '../../errors.ts';
import { type AuthScheme, isLoopbackHost } from '../../exchange.ts';
import { secretRedactor, minSecretLength } from '../../redact.ts';
import type { GatewayClient } from '../client.ts';
import { type WireResponse, sendRequest } from '../send-request.ts';
import { printableLine } from '../../printable.ts';
import { isAddress, isWithinReach } from '../reach.ts';
import { openConnections, type Connections } from '../connections.ts';
import { TransportError } from '../transport-error.ts';

/** A result's gateway, and the credentials for it. */
export interface DownloadGateway extends TrustedGateway {
  key: string;
  auth: AuthScheme;
  userAgent?: string;
  /**
   * The connections that result downloads share, see {@link GatewayClient}. If absent, each GET opens its own
   * connection.
   */
  downloadConnections?: GatewayClient['downloadConnections'];
  /** Receives each request and the head of its response. Queries are omitted, because they may contain a secret. */
  trace?: (line: string) => void;
}

/** Options of {@link follow}. */
export interface FollowOptions {
  gateway: DownloadGateway;
  headers: Record<string, string>;
  connectTimeoutMs: number;
  signal: AbortSignal;
  /** Called when a response's head arrives. */
  onHead: () => void;
}

/** The response after all redirects, with a body that is still arriving. */
export interface MediaReply {
  url: URL;
  status: number;
  headers: Record<string, string>;
  message: WireResponse;
  /** Whether the key was sent to this address. */
  isKeySent: boolean;
  redirects: number;
  /** Removes the key from the response's text. */
  clean: (text: string) => string;
}

const maxRedirects = 5;
const redirectStatuses = new Set([301, 302, 303, 307, 308]);

/**
 * Sends a GET and follows redirects. Each hop is checked separately: whether the address may be fetched, and whether it
 * may receive the key (`own-site`). No other header reveals anything about the user (design 6).
 * @throws MgwError('result_unavailable') for an address that must not be fetched, or after five redirects;
 * TransportError if no head arrived.
 */
export async function follow(
  source: { url: string; key: 'own-site' | 'never' },
  options: FollowOptions,
): Promise<MediaReply> {
  const { gateway, headers, onHead } = options;
  // A short key is not replaced, because it may occur in text and addresses by chance.
  const clean = gateway.key.length < minSecretLength ? (text: string) => text : secretRedactor([gateway.key]);
  let url = await checkTarget(source.url, gateway);
  for (let redirects = 0; ; redirects += 1) {
    const isKeySent = source.key === 'own-site' && gateway.key !== '' && (await mayGetKey(url, gateway));
    // The site that returned this address has the key, but the site at this address must not receive it.
    if (!isKeySent && clean(url.href) !== url.href) throw keyInAddressError(url);
    gateway.trace?.(`> GET ${url.origin}${url.pathname}${url.search && '?…'}`);
    const message = await get(url, {
      ...options,
      headers: { ...plainHeaders(gateway), ...headers, ...(isKeySent && keyHeader(gateway)) },
    });
    gateway.trace?.(`< ${message.statusCode} ${message.headers['content-type'] ?? ''}`.trimEnd());
    onHead();
    const location = redirectOf(message);
    if (location === undefined)
      return {
        url,
        status: message.statusCode,
        headers: message.headers,
        message,
        isKeySent,
        redirects,
        clean,
      };
    message.destroy();
    if (redirects === maxRedirects) throw tooManyRedirectsError(source.url);
    url = await checkTarget(location, gateway, url);
  }
}

function plainHeaders({ userAgent }: DownloadGateway): Record<string, string> {
  return { accept: '*/*', 'accept-encoding': 'identity', ...(userAgent && { 'user-agent': userAgent }) };
}

function keyHeader({ auth, key }: DownloadGateway): Record<string, string> {
  return { [auth.header]: `${auth.scheme} ${key}`.trim() };
}

// Returns the target of a redirect. Servers may send spaces and UTF-8 that should have been percent-encoded. undici
// decodes headers as Latin-1.
function redirectOf({ statusCode, headers }: WireResponse): string | undefined {
  const location = redirectStatuses.has(statusCode) ? headers['location'] : undefined;
  const decoded = location && Buffer.from(location, 'latin1').toString();
  return (decoded?.includes('\ufffd') ? location : decoded)?.replaceAll(' ', '%20');
}

function keyInAddressError(url: URL): MgwError {
  return new MgwError(
    'result_unavailable',
    `mgw does not fetch an address at ${url.origin}: it contains the key, which must not be sent there.`,
    { charged: 'yes', retry: 'never' },
  );
}

function tooManyRedirectsError(address: string): MgwError {
  return new MgwError(
    'result_unavailable',
    `${new URL(address).origin} redirected more than ${maxRedirects} times.`,
    { charged: 'yes', retry: 'resume' },
  );
}

/** The data that determines which addresses may be fetched, and which may receive the key. */
export interface TrustedGateway {
  baseUrl: URL;
  /** Origins that the user trusts with the key, in addition to the gateway's own. */
  trustedOrigins: readonly string[];
}

/**
 * Whether the key may be sent to an address (design 6, specification 4.1). Allows the base URL's origin, https on its
 * registrable domain, any port of the same host on loopback, and origins that the user trusts.
 */
export async function mayGetKey(url: URL, { baseUrl, trustedOrigins }: TrustedGateway): Promise<boolean> {
  if (url.origin === baseUrl.origin) return true;
  if (isLoopbackHost(baseUrl.hostname) && url.hostname === baseUrl.hostname) return true;
  if (trustedOrigins.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin))
    return true;
  const areSecureNames = [url, baseUrl].every(
    (each) => each.protocol === 'https:' && !isAddress(each.hostname),
  );
  return areSecureNames && (await isSameSite(url.hostname, baseUrl.hostname));
}

/**
 * Loads the list of sites that {@link mayGetKey} may need. Call it before a wait, because mgw may be upgraded or removed
 * during the wait.
 */
export async function loadSites(baseUrl: string): Promise<void> {
  if (baseUrl.startsWith('https:')) await import('tldts');
}

// Treats private suffixes as public suffixes, so two customers of one hosting domain are different sites.
async function isSameSite(host: string, otherHost: string): Promise<boolean> {
  const { getDomain } = await import('tldts');
  const site = getDomain(host, { allowPrivateDomains: true });
  return site !== null && site === getDomain(otherHost, { allowPrivateDomains: true });
}

/**
 * Returns the address of a result, or of a redirect from `from`, if it may be fetched. The address must be http or
 * https, without credentials. Refuses a redirect from https to http. Refuses a private or local address, unless the
 * base URL is also private or local.
 * @throws MgwError('result_unavailable') before any request.
 */
export async function checkTarget(address: string, gateway: TrustedGateway, from?: URL): Promise<URL> {
  if (/[\s\0-\x20\x7f-\x9f]/.test(address))
    throw refusedError(address, 'it contains white space or control characters');
  if (!URL.canParse(address, from?.href)) throw refusedError(address, 'it is not a valid URL');
  const url = new URL(address, from?.href);
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw refusedError(address, 'it is not http or https');
  if (url.username !== '' || url.password !== '') throw refusedError(url.host, 'it contains credentials');
  if (from?.protocol === 'https:' && url.protocol === 'http:')
    throw refusedError(url.origin, `${from.host} redirects from https to http`);
  if (!(await isWithinReach(url.hostname, gateway.baseUrl)))
    throw refusedError(url.origin, 'it is on a private network, but the base URL is not');
  if (url.href.includes('#')) url.hash = '';
  return url;
}

// Shows neither the query, which may be a signature, nor the part before an @, which may be a password.
function refusedError(address: string, why: string): MgwError {
  const printableAddress = printableLine(
    address.replace(/[?#].*$/s, '?…').replace(/\/\/[^/]*@/, '//…@'),
    200,
  );
  return new MgwError('result_unavailable', `mgw does not fetch the address ${printableAddress}: ${why}.`, {
    charged: 'yes',
    retry: 'never',
  });
}

/** The maximum number of bytes to read at a time and to buffer. */
const highWaterMark = 1024 * 1024;

// Created once, because destroying a socket with a new error formats its stack, which is slow.
const downloadEnded = new Error('the download has ended');

/** The maximum number of concurrent downloads from one gateway. */
const maxSharedConnections = 1024;

/**
 * Sends one GET, and returns the response when its head has arrived. Follows no redirects. A request to the gateway's
 * origin uses a shared connection if possible. Any other request, and a request that fails on a shared connection,
 * opens its own connection.
 * @throws TransportError if no head arrived.
 */
async function get(url: URL, options: FollowOptions): Promise<WireResponse> {
  const { signal } = options;
  const { baseUrl, downloadConnections } = options.gateway;
  if (downloadConnections !== undefined && url.origin === baseUrl.origin) {
    const connections = await downloadConnections(() => openFor(url, options, maxSharedConnections));
    try {
      return await sendGet(url, connections, options);
    } catch (error) {
      const isUnsent = error instanceof TransportError && error.phase === 'unsent';
      if (isUnsent || signal.aborted) throw TransportError.sent(error, url);
      // The server may have closed the idle connection, which proves nothing about the result.
    }
  }
  const ownConnections = await openFor(url, options, 1);
  const destroy = (): void => ownConnections.destroy(downloadEnded);
  try {
    return (await sendGet(url, ownConnections, options)).once('close', destroy);
  } catch (error) {
    await ownConnections.first?.finally(destroy);
    destroy();
    throw TransportError.sent(error, url);
  }
}

function openFor(
  url: URL,
  { connectTimeoutMs: timeoutMs, gateway, signal }: FollowOptions,
  maxConnections: number,
): Promise<Connections> {
  return openConnections(url, {
    timeoutMs,
    maxConnections,
    within: gateway.baseUrl,
    // A shared connection must survive this GET.
    ...(maxConnections === 1 && { signals: [signal] }),
    reusedBufferBytes: highWaterMark,
  });
}

function sendGet(
  url: URL,
  connections: Connections,
  { headers, signal }: FollowOptions,
): Promise<WireResponse> {
  const request = { method: 'GET', origin: url.origin, path: `${url.pathname}${url.search}`, headers };
  return sendRequest(connections, request, { maxBuffered: highWaterMark, signal });
}
