import { MgwError } from '../../errors.ts';
import type { AuthScheme } from '../../exchange.ts';
import { secretRedactor } from '../../redact.ts';
import type { GatewayClient } from '../client.ts';
import type { Answer } from '../answer.ts';
import { checkTarget, keyMayGo, type TrustedGateway } from '../trust.ts';
import { get } from './get.ts';

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
