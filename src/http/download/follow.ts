import { MgwError } from '../../errors.ts';
import { type AuthScheme, isLoopbackHost } from '../../exchange.ts';
import { secretRedactor } from '../../redact.ts';
import type { GatewayClient } from '../client.ts';
import { type Answer, sendOn } from '../answer.ts';
import { printableLine } from '../../printable.ts';
import { isAddress, isWithinReach } from '../reach.ts';
import { openConnections, type Connections } from '../connections.ts';
import { TransportError } from '../transport-error.ts';

/** Who asks for results, and what may be told to whom. */
export interface DownloadGateway extends TrustedGateway {
  key: string;
  auth: AuthScheme;
  userAgent?: string;
  /** Connections to it that are kept for results, see {@link GatewayClient}. */
  kept?: GatewayClient['kept'];
  /** Called with every request and the head of its answer. A query may be a capability: it is left out. */
  trace?: (line: string) => void;
}

/** How a source is opened. */
export interface FollowOptions {
  gateway: DownloadGateway;
  headers: Record<string, string>;
  connectTimeoutMs: number;
  signal: AbortSignal;
  /** Called with each head that comes. */
  onHead: () => void;
}

/** The answer at the end of the redirects, its body still to come. */
export interface MediaReply {
  url: URL;
  status: number;
  headers: Record<string, string>;
  message: Answer;
  /** True if the key went to this address. */
  keyed: boolean;
  redirects: number;
  /** Takes the key out of text that was made of the answer. */
  clean: (text: string) => string;
}

const maxRedirects = 5;
const redirectStatuses = new Set([301, 302, 303, 307, 308]);

/**
 * GETs an address and follows redirects by hand. Each hop is judged afresh: whether it may be asked at all, and
 * whether the key may go there (`own-site`); no other header tells anything about the user (design 6).
 * @throws MgwError('result_unavailable') for an address that is not fetched, or after five redirects;
 * TransportError if no head came.
 */
export async function follow(
  source: { url: string; key: 'own-site' | 'never' },
  options: FollowOptions,
): Promise<MediaReply> {
  const { gateway, headers, onHead } = options;
  // A short key occurs in texts and addresses by chance.
  const clean = gateway.key.length < 8 ? (text: string) => text : secretRedactor([gateway.key]);
  let url = await checkTarget(source.url, gateway);
  for (let redirects = 0; ; redirects += 1) {
    const keyed = source.key === 'own-site' && gateway.key !== '' && (await keyMayGo(url, gateway));
    // The site that named this address knows the key; the site at this address must not get it.
    if (!keyed && clean(url.href) !== url.href) throw keyInAddress(url);
    gateway.trace?.(`> GET ${url.origin}${url.pathname}${url.search && '?…'}`);
    const message = await get(url, {
      ...options,
      headers: { ...plainHeaders(gateway), ...headers, ...(keyed && keyHeader(gateway)) },
      baseUrl: gateway.baseUrl,
      kept: gateway.kept,
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
        keyed,
        redirects,
        clean,
      };
    message.destroy();
    if (redirects === maxRedirects) throw tooMany(source.url);
    url = await checkTarget(location, gateway, url);
  }
}

function plainHeaders({ userAgent }: DownloadGateway): Record<string, string> {
  return { accept: '*/*', 'accept-encoding': 'identity', ...(userAgent && { 'user-agent': userAgent }) };
}

function keyHeader({ auth, key }: DownloadGateway): Record<string, string> {
  return { [auth.header]: `${auth.scheme} ${key}`.trim() };
}

function redirectOf(message: Answer): string | undefined {
  return redirectStatuses.has(message.statusCode) ? message.headers['location'] : undefined;
}

function keyInAddress(url: URL): MgwError {
  return new MgwError(
    'result_unavailable',
    `The result's address at ${url.origin} holds the key, which must not go there; it is not fetched.`,
    { charged: 'yes', retry: 'never' },
  );
}

function tooMany(address: string): MgwError {
  return new MgwError(
    'result_unavailable',
    `${new URL(address).origin} redirected more than ${maxRedirects} times.`,
    { charged: 'yes', retry: 'resume' },
  );
}

/** Decides where a result may be fetched from, and where the key may go. */
export interface TrustedGateway {
  baseUrl: URL;
  /** Origins that the user trusts with the key in addition to the gateway's own. */
  trustedOrigins: readonly string[];
}

/**
 * True if the key may be sent to an address (design 6, specification 4.1): the base URL's origin, https on
 * its registrable domain, on loopback the same host with any port, or an origin that the user trusts.
 */
export async function keyMayGo(url: URL, { baseUrl, trustedOrigins }: TrustedGateway): Promise<boolean> {
  if (url.origin === baseUrl.origin) return true;
  if (isLoopbackHost(baseUrl.hostname) && url.hostname === baseUrl.hostname) return true;
  if (trustedOrigins.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin))
    return true;
  const bothNames = [url, baseUrl].every((each) => each.protocol === 'https:' && !isAddress(each.hostname));
  return bothNames && (await isSameSite(url.hostname, baseUrl.hostname));
}

// Private suffixes too: two customers of one hosting domain are two sites.
async function isSameSite(one: string, other: string): Promise<boolean> {
  const { getDomain } = await import('tldts');
  const site = getDomain(one, { allowPrivateDomains: true });
  return site !== null && site === getDomain(other, { allowPrivateDomains: true });
}

/**
 * The address of a result, or of a redirect (`from` is then the address that named it), where it may be fetched:
 * http or https without credentials, no step down from https by a redirect, and nothing private or of this
 * machine unless the base URL is such itself.
 * @throws MgwError('result_unavailable') before any request.
 */
export async function checkTarget(address: string, gateway: TrustedGateway, from?: URL): Promise<URL> {
  if (/[\s\0-\x20\x7f-\x9f]/.test(address))
    throw refused(address, 'it holds white space or control characters');
  if (!URL.canParse(address, from?.href)) throw refused(address, 'it is not an address');
  const url = new URL(address, from?.href);
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw refused(address, 'it is not http or https');
  if (url.username !== '' || url.password !== '') throw refused(url.host, 'it holds credentials');
  if (from?.protocol === 'https:' && url.protocol === 'http:')
    throw refused(url.origin, `${from.host} redirects from https to http`);
  if (!(await isWithinReach(url.hostname, gateway.baseUrl)))
    throw refused(url.origin, 'it is in a private network, and the base URL is not');
  if (url.href.includes('#')) url.hash = '';
  return url;
}

// What follows a question mark may be a signature, what precedes an @ a password: neither is shown.
function refused(address: string, why: string): MgwError {
  const shown = printableLine(address.replace(/[?#].*$/s, '?…').replace(/\/\/[^/]*@/, '//…@'), 200);
  return new MgwError('result_unavailable', `The result's address ${shown} is not fetched: ${why}.`, {
    charged: 'yes',
    retry: 'never',
  });
}

/** How one GET is made. */
interface GetOptions {
  headers: Record<string, string>;
  connectTimeoutMs: number;
  /** Where the gateway is: no address nearer to this machine is connected to (see `isWithinReach`). */
  baseUrl: URL;
  /** Connections to the gateway's origin that are kept from one GET to the next; absent, each has its own. */
  kept?: GatewayClient['kept'] | undefined;
  signal: AbortSignal;
}

/** So much is read at a time, and may wait to be written, bytes. */
const highWaterMark = 1024 * 1024;

// Made once, since a socket that is destroyed has the stack of its error written out.
const ended = new Error('the download has ended');

/** So many results of one gateway come at a time. */
const maxKept = 1024;

/**
 * One GET: the head of the answer, its body still to come. Follows nothing. What comes from the gateway's own origin
 * comes on a connection that is kept, if there are such; all else, and what fails there, on a connection of its own.
 * @throws TransportError if no head came.
 */
async function get(url: URL, options: GetOptions): Promise<Answer> {
  const { baseUrl, signal, kept } = options;
  if (kept !== undefined && url.origin === baseUrl.origin) {
    const connections = await kept(() => opened(url, options, maxKept));
    try {
      return await asked(url, connections, options);
    } catch (error) {
      const isUnsent = error instanceof TransportError && error.phase === 'unsent';
      if (isUnsent || signal.aborted) throw TransportError.sent(error, url);
      // The other side may have closed it while nothing came on it: that says nothing about the result.
    }
  }
  const own = await opened(url, options, 1);
  const end = (): void => own.destroy(ended);
  try {
    return (await asked(url, own, options)).once('close', end);
  } catch (error) {
    await own.first?.finally(end);
    end();
    throw TransportError.sent(error, url);
  }
}

function opened(
  url: URL,
  { connectTimeoutMs: timeoutMs, baseUrl, signal }: GetOptions,
  most: number,
): Promise<Connections> {
  return openConnections(url, {
    timeoutMs,
    most,
    within: baseUrl,
    // One that is kept is not this GET's alone.
    ...(most === 1 && { signals: [signal] }),
    readsUpTo: highWaterMark,
  });
}

function asked(url: URL, connections: Connections, { headers, signal }: GetOptions): Promise<Answer> {
  const request = { method: 'GET', origin: url.origin, path: `${url.pathname}${url.search}`, headers };
  return sendOn(connections, request, { maxBuffered: highWaterMark, signal });
}
