import { usageError } from '../../../errors.ts';
import { type AuthScheme, bearer, type Exchange, xApiKey } from '../../../exchange.ts';
import { printableLine } from '../../../printable.ts';
import { optionJson, optionText } from '../../body-option.ts';
import type { Context } from '../../context.ts';

/** The options of `mgw api`. */
export interface ApiOptions {
  body?: string;
  header?: string[];
  auth?: ApiAuth;
  include?: boolean;
}

/** How the key is sent, or that none is. */
export type ApiAuth = 'bearer' | 'x-api-key' | 'none';

/** How the key is sent, for each word of `--auth`. */
export const authSchemes: Record<ApiAuth, AuthScheme> = { bearer, 'x-api-key': xApiKey, none: bearer };

/**
 * The exchange that a raw call stands for.
 * @throws MgwError('usage') naming what is wrong; nothing is sent.
 */
export async function apiRequest(
  context: Context,
  method: string,
  path: string,
  options: ApiOptions,
): Promise<Exchange> {
  const verb = method.toUpperCase();
  if (verb !== 'GET' && verb !== 'POST')
    throw usageError(`METHOD: ${printableLine(method, 20)} is not allowed; allowed: GET, POST`);
  if (verb === 'GET' && options.body !== undefined) throw usageError('--body goes with POST.');
  const headers = headersOf(options.header ?? []);
  const { baseUrl } = await context.gateway();
  const exchange: Exchange = { method: verb, path: pathBelow(baseUrl, path), headers };
  if (options.body === undefined) return exchange;
  const body = await optionText(context, options.body, '--body');
  headers['content-type'] ??= 'application/json';
  if (/json/i.test(headers['content-type'])) optionJson(body, '--body');
  return { ...exchange, body };
}

/**
 * A path below the base URL, percent-encoded, with its query. An absolute address is one of the base URL's origin:
 * the key goes nowhere else.
 */
export function pathBelow(baseUrl: URL, path: string): string {
  const prefix = baseUrl.pathname.replace(/\/$/, '');
  const absolute = /^[a-z][a-z\d+.-]*:/i.test(path);
  const address = absolute ? path : `${baseUrl.origin}${prefix}${path}`;
  if (!absolute && !path.startsWith('/'))
    throw usageError(`PATH: ${printableLine(path, 60)} must begin with /`);
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const inside = url?.pathname === prefix || url?.pathname.startsWith(`${prefix}/`) === true;
  if (url?.origin !== baseUrl.origin || !inside || url.username !== '' || url.password !== '')
    throw usageError(
      `PATH: ${printableLine(path, 60)} is not below the base URL, and the key goes nowhere else.`,
    );
  return (url.pathname.slice(prefix.length) || '/') + url.search;
}

// A process list shows the command line: no key comes from there. The others are the transport's own.
const taken = /^(authorization|proxy-authorization|x-api-key|x-goog-api-key|cookie)$/i;
const transports =
  /^(host|content-length|transfer-encoding|connection|upgrade|te|trailer|expect|keep-alive)$/i;

function headersOf(lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name = '', value = ''] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*)$/s.exec(line) ?? [];
    const shown = printableLine(line.split(':')[0] ?? '', 60);
    if (name === '') throw usageError(`--header: write it as 'Name: value', not ${shown}`);
    if (taken.test(name))
      throw usageError(`--header ${shown}: the key is sent by --auth, from the configuration.`);
    if (transports.test(name)) throw usageError(`--header ${shown}: mgw sets it itself.`);
    if (/[^\t\x20-\x7e]/.test(value)) throw usageError(`--header ${shown}: its value must be plain ASCII.`);
    if (Object.hasOwn(headers, name.toLowerCase())) throw usageError(`--header ${shown} is given twice.`);
    headers[name.toLowerCase()] = value.trim();
  }
  return headers;
}
