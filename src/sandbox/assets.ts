import { isIPv4 } from 'node:net';

/** True for an absolute `http:` or `https:` URL without credentials. */
export function isHttpUrl(value: unknown): value is string {
  if (typeof value !== 'string' || !URL.canParse(value)) return false;
  const { protocol, username, password } = new URL(value);
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === '';
}

/** True where an upstream on the public internet could not possibly fetch the URL (specification 8). */
export function isUnreachable(url: string): boolean {
  const { hostname } = new URL(url);
  const isName = !isIPv4(hostname) && !hostname.startsWith('[');
  if (isName)
    return !hostname.includes('.') || /\.(localhost|local|internal|test|invalid)\.?$/.test(hostname);
  return isIPv4(hostname) ? PRIVATE_V4.test(hostname) : PRIVATE_V6.test(hostname);
}

const PRIVATE_V4 =
  /^(0|10|127|169\.254|192\.168|172\.(1[6-9]|2\d|3[01])|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\./;
const PRIVATE_V6 = /^\[(::1?\]|::ffff:|f[cd]|fe[89ab])/;
