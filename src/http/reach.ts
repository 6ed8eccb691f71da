import type { LookupAddress, LookupOptions } from 'node:dns';
import { lookup } from 'node:dns/promises';
import ipaddr from 'ipaddr.js';
import { isLoopbackHost } from '../exchange.ts';

/**
 * Where a host is: on the public internet, in a private network, or on this machine. `never` is what no result is
 * fetched from: link-local (where clouds keep their secrets), reserved, or hidden inside an IPv6 address.
 */
export type Reach = 'public' | 'private' | 'loopback' | 'never';

const reachOfRange: Partial<Record<string, Reach>> = {
  unicast: 'public',
  private: 'private',
  uniqueLocal: 'private',
  carrierGradeNat: 'private',
  loopback: 'loopback',
};
const privateName = /(^|\.)(localdomain|local|internal|lan|home\.arpa)$/;

/** Where a host is, by its name or address as it is written, with or without IPv6's brackets. Nothing is looked up. */
export function reachOf(host: string): Reach {
  const bare = bareHost(host);
  if (isAddress(bare)) return reachOfAddress(ipaddr.parse(bare));
  if (/(^|\.)localhost$/.test(bare)) return 'loopback';
  return !bare.includes('.') || privateName.test(bare) ? 'private' : 'public';
}

/** True for a host that is an address, with or without IPv6's brackets. */
export function isAddress(host: string): boolean {
  const bare = bareHost(host);
  // To find that a name is none the library makes an error.
  return mayBeAddress.test(bare) && ipaddr.isValid(bare);
}

const mayBeAddress = /:|^[\da-fx.]+$/i;

function bareHost(host: string): string {
  return host.replace(/\.$/, '').replace(/^\[(.*)\]$/, '$1');
}

function reachOfAddress(address: ipaddr.IPv4 | ipaddr.IPv6): Reach {
  const inner = innerAddress(address);
  if (inner !== undefined) return reachOfAddress(inner) === 'public' ? 'public' : 'never';
  return reachOfRange[address.range()] ?? 'never';
}

// An IPv4 address that is mapped into an IPv6 one, or translated to it (NAT64, 6to4).
function innerAddress(address: ipaddr.IPv4 | ipaddr.IPv6): ipaddr.IPv4 | undefined {
  if (!(address instanceof ipaddr.IPv6)) return undefined;
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  const bytes = address.toByteArray();
  if (address.match(ipaddr.IPv6.parse('64:ff9b::'), 96)) return new ipaddr.IPv4(bytes.slice(12));
  return address.range() === '6to4' ? new ipaddr.IPv4(bytes.slice(2, 6)) : undefined;
}

/**
 * True if an answer of the gateway may lead to a host: to the base URL's own, to the public internet, and no nearer
 * to this machine than the base URL itself leads, by its name or by what DNS says of it.
 */
export async function isWithinReach(host: string, baseUrl: URL): Promise<boolean> {
  const [bare, own] = [bareHost(host), bareHost(baseUrl.hostname)];
  if (bare === own) return true;
  const reach = reachOf(bare);
  if (reach === 'public') return true;
  if (reach === 'never') return false;
  const led = await reachOfGateway(own);
  return led === 'loopback' || led === reach;
}

// Inside a company its gateway's public name may lead to a private address.
async function reachOfGateway(own: string): Promise<Reach> {
  const written = reachOf(own);
  if (written !== 'public' || isAddress(own)) return written;
  const addresses = await lookup(own, { all: true }).catch(() => []);
  const reaches = addresses.map(({ address }) => reachOf(address));
  return (
    reaches.find((reach) => reach === 'loopback') ?? reaches.find((reach) => reach === 'private') ?? written
  );
}

/** Why a host is not connected to. */
export function privateAddressError(host: string): Error {
  const message = `${host} is in a private network, and the base URL is not`;
  return Object.assign(new Error(message), { code: 'MGW_PRIVATE' });
}

type Callback = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/**
 * A look-up for connections to what an answer names: it fails where DNS gives an address that is not within reach, so
 * that a public name cannot lead to a private address.
 */
export function lookupWithin(
  baseUrl: URL,
): (hostname: string, options: LookupOptions, callback: Callback) => void {
  return (hostname, { family, all }, callback) => {
    addressesWithin(hostname, family, baseUrl).then(
      ([first = { address: '', family: 0 }, ...more]) =>
        all ? callback(null, [first, ...more]) : callback(null, first.address, first.family),
      (error: unknown) => callback(error as Error, ''),
    );
  };
}

async function addressesWithin(
  hostname: string,
  family: LookupOptions['family'],
  baseUrl: URL,
): Promise<LookupAddress[]> {
  const addresses = await lookup(hostname, { family, all: true });
  if (hostname === bareHost(baseUrl.hostname)) return addresses;
  for (const { address } of addresses)
    if (!(await isWithinReach(address, baseUrl))) throw privateAddressError(address);
  return addresses;
}

/** A URL's host without the brackets of IPv6. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** True if a host, without the brackets of IPv6, is this machine's loopback, by name or by address. */
export function isLoopback(host: string): boolean {
  return host === '::1' || host.endsWith('.localhost') || isLoopbackHost(host);
}

/**
 * The environment's proxy for a URL, '' for none; loopback has none. The caller applies NO_PROXY.
 * @throws Error if it is of a kind that is not known.
 */
export function proxyFor(url: URL): string {
  // undici would take the proxy of http for https, too, and speak to kinds of proxies that know no tunnel.
  const name = url.protocol.replace(':', '_proxy');
  const value = isLoopback(hostOf(url)) ? '' : process.env[name] || process.env[name.toUpperCase()] || '';
  if (value === '' || /^https?:\/\//i.test(value)) return value;
  if (!value.includes('://')) return `http://${value}`;
  throw new Error(
    `the environment's proxy speaks ${value.split(':')[0] ?? ''}, and only http and https are known`,
  );
}
