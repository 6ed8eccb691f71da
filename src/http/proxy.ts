import { isLoopbackHost } from '../exchange.ts';

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
