import type { MgwError } from '../errors.ts';
import { isLoopbackHost } from '../exchange.ts';
import { badSetting, type Layers, lookUp, type Setting } from './layers.ts';

/** A normalized base URL, or the reason why the configured base URL cannot be used. */
interface BaseUrl {
  baseUrl?: Setting<string>;
  baseUrlProblem?: MgwError;
}

/**
 * Returns the configured base URL, or the reason why it cannot be used. Returns an empty object if no base URL is
 * configured.
 */
export function resolveBaseUrl(layers: Layers, allowHttp: boolean): BaseUrl {
  const found = lookUp(baseUrlRule, layers);
  if (found === undefined) return {};
  const text = String(found.value);
  try {
    return { baseUrl: { ...found, value: parseBaseUrl(text, allowHttp) } };
  } catch (error) {
    return { baseUrlProblem: badSetting('base_url', found, text, error) };
  }
}

/** Where the base URL can be set. */
export const baseUrlRule = {
  key: 'base_url',
  flag: { name: '--base-url', field: 'baseUrl' },
  env: 'MGW_BASE_URL',
} as const;

/**
 * Returns the trusted origins from the flag, followed by those from the profile.
 * @throws MgwError that names an invalid origin.
 */
export function resolveOrigins(layers: Layers, allowHttp: boolean): Setting<string[]> {
  const rule = { key: 'trusted_origins', flag: { name: '--trust-origin', field: 'trustOrigin' } } as const;
  const flagSetting = lookUp(rule, { ...layers, profile: {} });
  const profileSetting = lookUp(rule, { ...layers, flags: {} });
  const origins = [flagSetting, profileSetting].flatMap((found) => {
    if (found === undefined) return [];
    return (found.value as string[]).map((origin) => {
      try {
        return parseOrigin(origin, allowHttp);
      } catch (error) {
        throw badSetting(rule.key, found, origin, error);
      }
    });
  });
  return { ...(flagSetting ?? profileSetting ?? { source: 'default' }), value: [...new Set(origins)] };
}

// The paths that the specification (4 and 9) appends to the base URL. A base URL must not contain them.
const ownPath = /^\/?(.*\/)?(v1beta|v1|api\/v3)(\/|$)/;

/**
 * Normalizes a base URL: scheme, host, port, and an optional path prefix without a trailing slash. Protocol B is served
 * at the root (specification 4.2), so a prefix is only useful for a gateway behind a proxy.
 * @throws Error whose message states the allowed values and contains no URL with credentials.
 */
export function parseBaseUrl(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^\s*https?:\/\/[^/\\]/i.test(text) || text.includes('\\'))
    throw new Error('an address such as https://gateway.example.com');
  // A secret of a CI system often ends with a line break, which an error that quotes the address would not show.
  if (/[\s\p{Cc}]/u.test(text))
    throw new Error(
      'an address without white space or control characters (is there a line break at its end?)',
    );
  if (url.username !== '' || url.password !== '' || /^[^?#]*\/\/[^/?#]*@/.test(text))
    throw new Error('an address without a user name or password (to set the key, use mgw auth login)');
  if (/[?#]/.test(text)) throw new Error('an address without a query or a fragment (#)');
  const own = ownPath.exec(url.pathname)?.[2];
  if (own !== undefined) throw new Error(`an address without /${own}, which mgw adds`);
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error(
      'an https:// address, because http:// exposes the key to the network (to allow it: --allow-http)',
    );
  return url.origin + url.pathname.replace(/(?<!\/)\/+$/, '');
}

/** Normalizes an origin (`https://host:port`). @throws Error whose message states the allowed values. */
export function parseOrigin(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const bare = /^https?:\/\/[^/\\?#@\s]+\/?$/i.test(text);
  if (url === undefined || !bare)
    throw new Error('an origin such as https://files.example.com, with no path');
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error('an https:// origin, because the key is sent there (to allow http://: --allow-http)');
  return url.origin;
}
