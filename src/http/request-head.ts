import type { AuthScheme, HttpRequest } from '../exchange.ts';

/**
 * The path of a request below the base URL's own.
 * @throws TypeError if it is not percent-encoded.
 */
export function pathFor(request: HttpRequest, baseUrl: URL): string {
  const path = baseUrl.pathname.replace(/\/$/, '') + request.path;
  if (/[^\x21-\x7e]/.test(path))
    throw new TypeError(`the path ${JSON.stringify(path)} is not percent-encoded`);
  return path;
}

/**
 * All headers of a request, with the key if `auth` asks for it.
 * @throws TypeError if one cannot be sent as it is.
 */
export function headersFor(
  request: HttpRequest,
  auth: AuthScheme,
  client: { baseUrl: URL; key: string; userAgent: string },
): Record<string, string> {
  const headers = {
    'user-agent': client.userAgent,
    accept: 'application/json, */*;q=0.5',
    'accept-encoding': 'identity',
    ...request.headers,
    ...(request.body !== undefined && { 'content-length': String(Buffer.byteLength(request.body)) }),
    ...(client.key !== '' && { [auth.header]: `${auth.scheme} ${client.key}`.trim() }),
  };
  for (const [name, value] of Object.entries(headers)) {
    if (!isToken.test(name)) throw new TypeError(`the header ${JSON.stringify(name)} has no valid name`);
    if (!isSendable.test(value))
      throw new TypeError(`the header ${name} holds a character that cannot be sent`);
  }
  return headers;
}

// RFC 9110 5.6.2 and 5.5: visible ASCII, blanks, tabs and what Latin-1 has beyond ASCII.
const isToken = /^[\w!#$%&'*+.^`|~-]+$/;
const isSendable = /^[\t\x20-\x7e\x80-\xff]*$/;
