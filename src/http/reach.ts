import type { LookupAddress, LookupOptions } from 'node:dns';
import { lookup } from 'node:dns/promises';
import ipaddr from 'ipaddr.js';
import { isLoopbackHost } from '../exchange.ts';

/**
 * The network of a host: the public internet, a private network, or this machine. `never`: no result is fetched
 * from the host, because its address is link-local (where cloud providers serve credentials), reserved, or hidden
 * in an IPv6 address.
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

/** Returns a host's network according to its name or address, with or without IPv6 brackets. Makes no DNS lookup. */
export function reachOf(host: string): Reach {
  const bare = bareHost(host);
  if (isAddress(bare)) return reachOfAddress(ipaddr.parse(bare));
  if (/(^|\.)localhost$/.test(bare)) return 'loopback';
  return !bare.includes('.') || privateName.test(bare) ? 'private' : 'public';
}

/** Whether a host is an IP address, with or without IPv6 brackets. */
export function isAddress(host: string): boolean {
  const bare = bareHost(host);
  // For a host name, the library would create an error, which is slow.
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

// Returns the IPv4 address that an IPv6 address maps or translates (NAT64, 6to4); undefined if there is none.
function innerAddress(address: ipaddr.IPv4 | ipaddr.IPv6): ipaddr.IPv4 | undefined {
  if (!(address instanceof ipaddr.IPv6)) return undefined;
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  const bytes = address.toByteArray();
  if (address.match(ipaddr.IPv6.parse('64:ff9b::'), 96)) return new ipaddr.IPv4(bytes.slice(12));
  return address.range() === '6to4' ? new ipaddr.IPv4(bytes.slice(2, 6)) : undefined;
}

/**
 * Whether a gateway's response may refer to a host. True for the base URL's host and for the public internet. Also true
 * for networks that are not nearer to this machine than the base URL, according to the URL's name or DNS addresses.
 */
export async function isWithinReach(host: string, baseUrl: URL): Promise<boolean> {
  const [bare, gatewayHost] = [bareHost(host), bareHost(baseUrl.hostname)];
  if (bare === gatewayHost) return true;
  const reach = reachOf(bare);
  if (reach === 'public') return true;
  if (reach === 'never') return false;
  const gatewayReach = await reachOfGateway(gatewayHost);
  return gatewayReach === 'loopback' || gatewayReach === reach;
}

// Returns the network of the gateway's host. Makes a DNS lookup, because in a company network, the gateway's public
// name may resolve to a private address.
async function reachOfGateway(gatewayHost: string): Promise<Reach> {
  const writtenReach = reachOf(gatewayHost);
  if (writtenReach !== 'public' || isAddress(gatewayHost)) return writtenReach;
  const addresses = await lookup(gatewayHost, { all: true }).catch(() => []);
  const reaches = addresses.map(({ address }) => reachOf(address));
  return (
    reaches.find((reach) => reach === 'loopback') ??
    reaches.find((reach) => reach === 'private') ??
    writtenReach
  );
}

/** Returns the error for a host in a network that must not be connected to. */
export function privateAddressError(host: string): Error {
  const message = `${host} is on a private network, but the base URL is not`;
  return Object.assign(new Error(message), { code: 'MGW_PRIVATE' });
}

type Callback = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/**
 * Returns a DNS lookup function for hosts from responses. The lookup fails if an address is not within reach, so that a
 * public name cannot lead to a private address.
 */
export function lookupWithin(
  baseUrl: URL,
): (hostname: string, options: LookupOptions, callback: Callback) => void {
  return (hostname, { family, all }, callback) => {
    addressesWithin(hostname, family, baseUrl).then(
      ([first = { address: '', family: 0 }, ...others]) =>
        all ? callback(null, [first, ...others]) : callback(null, first.address, first.family),
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

/** Returns a URL's host, without IPv6 brackets. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}

/** Whether a host, given without IPv6 brackets, is loopback, by name or by address. */
export function isLoopback(host: string): boolean {
  return host === '::1' || host.endsWith('.localhost') || isLoopbackHost(host);
}

/** A proxy that the environment sets. */
export interface ProxySetting {
  /** The proxy's URL. */
  address: string;
  /** The proxy's URL without its credentials, and the name of its variable. */
  text: string;
  /** The error if the proxy cannot be used; `address` is then a placeholder. */
  problem?: Error;
}

/**
 * Returns the environment's proxy for a URL; undefined if there is none or the host is loopback. Ignores NO_PROXY,
 * which the proxy agent applies.
 */
export function proxyFor(url: URL): ProxySetting | undefined {
  // undici itself would use the http proxy for https too, and accept proxies that do not support tunnels.
  const lowerCase = url.protocol.replace(':', '_proxy');
  const name = process.env[lowerCase] ? lowerCase : lowerCase.toUpperCase();
  const value = isLoopback(hostOf(url)) ? '' : process.env[name] || '';
  if (value === '') return undefined;
  const address = value.includes('://') ? value : `http://${value}`;
  const problem = proxyProblem(address);
  if (problem === undefined) {
    const { protocol, host } = new URL(address);
    return { address, text: `${protocol}//${host} (from ${name})` };
  }
  const error = Object.assign(new Error(`${name} ${problem}`), { code: 'MGW_PROXY' });
  return { address: 'http://proxy.invalid', text: name, problem: error };
}

// Does not quote the address, because it may contain a password.
function proxyProblem(address: string): string | undefined {
  if (!/^https?:\/\//i.test(address))
    return `is a ${address.split(':')[0] ?? ''} proxy; mgw supports only http and https proxies`;
  try {
    const { username, password } = new URL(address);
    decodeURIComponent(`${username}:${password}`);
    return undefined;
  } catch {
    return 'is not a valid URL; special characters in its user name or password must be percent-encoded';
  }
}
