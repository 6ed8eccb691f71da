import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { AuthScheme, Exchange } from '../exchange.ts';

/**
 * The path of a request below the base URL's own.
 * @throws TypeError where it is not percent-encoded.
 */
export function pathFor(request: Exchange, baseUrl: URL): string {
  const path = baseUrl.pathname.replace(/\/$/, '') + request.path;
  if (/[^\x21-\x7e]/.test(path))
    throw new TypeError(`the path ${JSON.stringify(path)} is not percent-encoded`);
  return path;
}

/**
 * All headers of a request, with the key where `auth` wants it.
 * @throws TypeError where one cannot be sent as it is.
 */
export function headersFor(
  request: Exchange,
  auth: AuthScheme,
  client: { baseUrl: URL; key: string; userAgent: string },
): Record<string, string | number> {
  const headers = {
    host: client.baseUrl.host,
    'user-agent': client.userAgent,
    accept: 'application/json, */*;q=0.5',
    'accept-encoding': 'identity',
    ...request.headers,
    ...(request.body !== undefined && { 'content-length': Buffer.byteLength(request.body) }),
    ...(client.key !== '' && { [auth.header]: `${auth.scheme} ${client.key}`.trim() }),
  };
  for (const [name, value] of Object.entries(headers)) {
    validateHeaderName(name);
    validateHeaderValue(name, String(value));
  }
  return headers;
}
