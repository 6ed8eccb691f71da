import { messageOf } from './errors.ts';
import { parseDuration } from './clock.ts';
import { nearestName } from './nearest.ts';
import { printableLine } from './printable.ts';

/** The parsed URL of a ledger on PostgreSQL. */
export interface StateUrl {
  /** The URL for the database client, without mgw's own parameters. */
  href: string;
  /** The URL without its password, for messages. */
  displayUrl: string;
  /** The URL's password; '' if it has none. */
  password: string;
  /** The database schema that contains the tables. */
  schema: string;
  /** How long a process is considered alive after it stops renewing its lease, in ms. */
  leaseMs: number;
  /** How long to wait for an unresponsive database, in ms. */
  responseTimeoutMs: number;
  tls: StateTls;
}

/** Settings for the encryption of the database connection. */
export interface StateTls {
  /** The mode that `sslmode` sets. If undefined, TLS is verified unless the server is on this machine. */
  mode?: 'verify' | 'no-verify' | 'disable';
  /** Paths of PEM files, from `sslrootcert`, `sslcert` and `sslkey`. */
  ca?: string;
  cert?: string;
  key?: string;
}

/** The accepted values of `sslmode`. Verification always includes the server's name. */
const tlsModes: Record<string, StateTls['mode']> = {
  'verify-full': 'verify',
  'verify-ca': 'verify',
  require: 'verify',
  'no-verify': 'no-verify',
  disable: 'disable',
};

/** The parameters that mgw reads, with their defaults. */
const defaultParameters = {
  ...{ schema: 'mgw', lease: '', connect_timeout: '' },
  ...{ sslmode: '', sslrootcert: '', sslcert: '', sslkey: '' },
};

/** All known parameters: those that mgw reads, and those that the database client reads. */
const parameterNames = [
  ...Object.keys(defaultParameters),
  ...['user', 'password', 'host', 'port', 'options', 'application_name'],
];

const defaultLeaseMs = 30_000;
const defaultTimeoutMs = 10_000;
const expectedForm =
  'postgres://USER@HOST/DATABASE, with ?schema=NAME, lease=30s and connect_timeout=10 as parameters, and / ? # @ in a password written as %2F %3F %23 %40';

/** Whether a string is the URL of a ledger on PostgreSQL, and not a folder. */
export function isStateUrl(text: string): boolean {
  return /^postgres(ql)?:\/\//i.test(text);
}

/**
 * Parses the URL of a PostgreSQL ledger.
 * @throws Error if the URL is invalid. The message states the allowed values. It does not quote the URL's values,
 * because one may be a password.
 */
export function parseStateUrl(text: string): StateUrl {
  const url = isStateUrl(text) ? parseUrl(text) : undefined;
  if (url === undefined || url.pathname.length < 2) throw new Error(expectedForm);
  if (url.searchParams.has('ssl') || url.searchParams.has('uselibpqcompat'))
    throw new Error(`a URL without ssl or uselibpqcompat; to set TLS, use ${tlsOptions}`);
  const parameters = { ...defaultParameters };
  for (const name of Object.keys(parameters) as (keyof typeof parameters)[]) {
    parameters[name] = url.searchParams.get(name) ?? parameters[name];
    url.searchParams.delete(name);
  }
  for (const name of url.searchParams.keys()) checkParameter(name);
  if (!/^[a-z_][a-z0-9_]{0,40}$/.test(parameters.schema))
    throw new Error('a URL with schema=NAME of lower-case letters, digits and _');
  const patienceMs =
    parameters.connect_timeout === '' ? defaultTimeoutMs : 1000 * Number(parameters.connect_timeout);
  if (!(patienceMs >= 1000 && patienceMs <= 600_000))
    throw new Error('a URL with a connect_timeout of 1 to 600 seconds');
  return {
    href: url.href,
    displayUrl: maskPassword(text),
    password: passwordIn(url),
    schema: parameters.schema,
    leaseMs: parameters.lease === '' ? defaultLeaseMs : parseLease(parameters.lease),
    responseTimeoutMs: patienceMs,
    tls: parseTls(parameters.sslmode, [parameters.sslrootcert, parameters.sslcert, parameters.sslkey]),
  };
}

// Refuses a misspelt parameter, because it would have no effect. Allows other unknown parameters, because database
// hosts add their own, such as channel_binding.
function checkParameter(name: string): void {
  const nearest = parameterNames.includes(name) ? undefined : nearestName(name, parameterNames);
  if (nearest !== undefined)
    throw new Error(`a URL with the parameter ${nearest} instead of ${printableLine(name, 40)}`);
}

const tlsOptions = `one of sslmode=${Object.keys(tlsModes).join(', ')}`;

function parseTls(sslmode: string, [ca, cert, key]: readonly string[]): StateTls {
  const mode = tlsModes[sslmode];
  if (sslmode !== '' && mode === undefined) throw new Error(`a URL with ${tlsOptions}`);
  return { ...(mode && { mode }), ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

/**
 * Masks a URL's password and the values of its unknown parameters. Returns a placeholder
 * for a string that is not a valid URL.
 */
export function maskPassword(text: string): string {
  const url = parseUrl(text);
  if (url === undefined) return 'postgres://…';
  if (url.password !== '') url.password = '***';
  for (const name of new Set(url.searchParams.keys()))
    if (name === 'password' || !parameterNames.includes(name)) url.searchParams.set(name, '***');
  return url.href;
}

// Returns undefined if an @ follows the host, because the password then contains an unescaped / or ?. The rest of the
// password would be parsed as a path and parameters.
function parseUrl(text: string): URL | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url === undefined || `${url.pathname}${url.search}${url.hash}`.includes('@') ? undefined : url;
}

/** Whether a URL contains a password, even if the URL is not valid. */
export function hasPassword(text: unknown): boolean {
  if (typeof text !== 'string' || !isStateUrl(text)) return false;
  const login = text.slice(text.indexOf('://') + 3, Math.max(0, text.lastIndexOf('@')));
  return /^[^@/?#]*:./.test(login) || (URL.canParse(text) && passwordIn(new URL(text)) !== '');
}

function passwordIn(url: URL): string {
  const password = url.password || url.searchParams.get('password') || '';
  try {
    return decodeURIComponent(password);
  } catch {
    return password;
  }
}

function parseLease(text: string): number {
  let ms: number;
  try {
    ms = parseDuration(text);
  } catch (error) {
    throw new Error(`a URL whose lease is ${messageOf(error)}`, { cause: error });
  }
  if (ms < 1000 || ms > 3_600_000) throw new Error('a URL with a lease of 1s to 1h');
  return ms;
}
