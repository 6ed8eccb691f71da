import { MgwError } from '../errors.ts';
import { isLoopbackHost } from '../exchange.ts';
import { printableLine } from '../printable.ts';
import { isAddress, isWithinReach } from './reach.ts';

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
