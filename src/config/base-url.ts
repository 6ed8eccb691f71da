import { isLoopbackHost } from '../loopback.ts';

// The paths that the specification itself appends (4 and 9), so that none of them can be part of the base.
const ownPath = /^\/?(.*\/)?(v1beta|v1|api\/v3)(\/|$)/;

/**
 * A base URL in its normal form: scheme, host, port, and a path prefix if any, with no slash at the end.
 * Protocol B is served at the root of it (specification 4.2), so a prefix is only for a gateway behind a proxy.
 * @throws Error whose message says what is allowed; a URL with credentials is not echoed.
 */
export function parseBaseUrl(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\/[^/\\]/i.test(text) || /[\s\\\p{Cc}]/u.test(text))
    throw new Error('an address such as https://gateway.example.com');
  if (url.username !== '' || url.password !== '' || /^[^?#]*\/\/[^/?#]*@/.test(text))
    throw new Error('an address without user name and password; the key is given by mgw auth login');
  if (/[?#]/.test(text)) throw new Error('an address without a query and without #');
  const own = ownPath.exec(url.pathname)?.[2];
  if (own !== undefined)
    throw new Error(`an address without the path: leave /${own} out, mgw adds it itself`);
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error(
      'an https:// address, since http:// shows the key to the network (--allow-http overrides)',
    );
  return url.origin + url.pathname.replace(/(?<!\/)\/+$/, '');
}

/**
 * An origin in its normal form (`https://host:port`).
 * @throws Error whose message says what is allowed.
 */
export function parseOrigin(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const bare = /^https?:\/\/[^/\\?#@\s]+\/?$/i.test(text);
  if (url === undefined || !bare)
    throw new Error('an origin such as https://files.example.com, with no path');
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error('an https:// origin, since the key is sent there (--allow-http overrides)');
  return url.origin;
}
