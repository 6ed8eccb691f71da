import type { MgwError } from '../errors.ts';
import { type AuthScheme, isLoopbackHost } from '../exchange.ts';
import type { JobKind } from '../job.ts';
import { badSetting, type Layers, lookUp, read, type Setting } from './layers.ts';
import type { Folder } from './places.ts';
import { boolean, type Rule, rules } from './rules.ts';
import type { FlagDefault } from './schema.ts';

/** A base URL in its normal form, or the reason why the configured one cannot be used. */
interface BaseUrl {
  baseUrl?: Setting<string>;
  baseUrlProblem?: MgwError;
}

/** Returns the configured base URL, or the reason why it cannot be used; neither if none is configured. */
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

/** The sources of the base URL. */
export const baseUrlRule = {
  key: 'base_url',
  flag: { name: '--base-url', field: 'baseUrl' },
  env: 'MGW_BASE_URL',
} as const;

/**
 * Returns the trusted origins: those from the flag, followed by those from the profile.
 * @throws MgwError that names an invalid origin
 */
export function resolveOrigins(layers: Layers, allowHttp: boolean): Setting<string[]> {
  const rule = { key: 'trusted_origins', flag: { name: '--trust-origin', field: 'trustOrigin' } } as const;
  const given = lookUp(rule, { ...layers, profile: {} });
  const kept = lookUp(rule, { ...layers, flags: {} });
  const origins = [given, kept].flatMap((found) => {
    if (found === undefined) return [];
    return (found.value as string[]).map((origin) => {
      try {
        return parseOrigin(origin, allowHttp);
      } catch (error) {
        throw badSetting(rule.key, found, origin, error);
      }
    });
  });
  return { ...(given ?? kept ?? { source: 'default' }), value: [...new Set(origins)] };
}

/**
 * Returns the pause between polls in ms. The specification asks for 5 to 10 seconds (8); on loopback it may be shorter,
 * since there is no server to protect.
 * @throws MgwError if the pause is too short
 */
export function resolvePollInterval(
  layers: Layers,
  sandbox: boolean,
  base?: Setting<string>,
): Setting<number> {
  const interval = read(rules.pollIntervalMs, layers);
  const loopback = sandbox || base === undefined || isLoopbackHost(new URL(base.value).hostname);
  if (interval.value >= rules.pollIntervalMs.fallback || loopback) return interval;
  const allowed = new Error('5s or more; less only if the base URL is loopback');
  throw badSetting('poll_interval', interval, `${interval.value}ms`, allowed);
}

/**
 * Returns how Protocol C sends the key (specification 5.5). By default, Authorization has a scheme, and any other
 * header has the bare key.
 * @throws MgwError if the header or the scheme is invalid
 */
export function resolveCAuth(layers: Layers): Setting<AuthScheme> {
  const header = read(rules.cAuthHeader, layers);
  const scheme = read(rules.cAuthScheme, layers);
  const usual = header.value.toLowerCase() === 'authorization' ? 'Bearer' : '';
  const origin = header.source === 'default' ? scheme : header;
  return { ...origin, value: { header: header.value, scheme: scheme.value ?? usual } };
}

/**
 * Whether to use the sandbox.
 * @throws MgwError if MGW_SANDBOX is not yes, no, or the address of a sandbox, because a guess could spend money
 */
export function resolveSandbox(layers: Layers): Setting<boolean> {
  return read(sandboxRule, { ...layers, profile: {} });
}

/** The address of a running sandbox, if MGW_SANDBOX names one (`mgw sandbox exec`, design 9). */
export function servedSandbox({ env }: Layers): string | undefined {
  const given = env['MGW_SANDBOX'] ?? '';
  return sandboxAddress.test(given) ? given : undefined;
}

// A sandbox must be on this machine.
const sandboxAddress = /^http:\/\/127\.0\.0\.1:[1-9]\d{0,4}$/;

function yesNoOrAddress(given: unknown): boolean {
  if (sandboxAddress.test(String(given))) return true;
  try {
    return boolean(given);
  } catch {
    throw new Error('true or false, or the address of a running sandbox (http://127.0.0.1:PORT)');
  }
}

const sandboxRule: Rule<boolean> = {
  key: 'sandbox',
  flag: { name: '--sandbox', field: 'sandbox' },
  env: 'MGW_SANDBOX',
  parse: yesNoOrAddress,
  fallback: false,
};

/**
 * Whether prompts are forbidden by `--no-input`, MGW_NO_INPUT, or CI.
 * @throws MgwError if a variable is neither yes nor no
 */
export function resolveNoInput(layers: Layers): Setting<boolean> {
  if (layers.flags.input === false) return { value: true, source: 'flag', name: '--no-input' };
  const own = read<boolean>(noInputRule, { ...layers, profile: {} });
  const ci = layers.env['CI'] ?? '';
  if (own.source !== 'default' || /^(|0|false|no|off)$/i.test(ci)) return own;
  return { value: true, source: 'env', name: 'CI' };
}

const noInputRule: Rule<boolean> = { key: 'no_input', env: 'MGW_NO_INPUT', parse: boolean, fallback: false };

/** Converts a folder to a setting. */
export function folderSetting({ path, variable }: Folder): Setting<string> {
  return variable === undefined
    ? { value: path, source: 'default' }
    : { value: path, source: 'env', name: variable };
}

/** Returns the profile's defaults for one model, by long flag name (`aspect-ratio`); empty if there are none. */
export function defaultsFor(
  layers: Layers,
  protocol: string,
  model: string | undefined,
): Record<string, FlagDefault> {
  const models = layers.profile.defaults?.video?.[protocol] ?? {};
  if (model === undefined || !Object.hasOwn(models, model)) return {};
  const entries = Object.entries(models[model] ?? {});
  return Object.fromEntries(entries.map(([name, value]) => [name.replaceAll('_', '-'), value]));
}

/** Returns the configured price of a model; undefined if there is none. Speech has only one model. */
export function priceOf(
  { profile, profileName }: Layers,
  kind: JobKind,
  model: string,
): Setting<string> | undefined {
  const models = kind === 'tts' ? undefined : profile.prices?.[kind];
  const value =
    kind === 'tts' ? profile.prices?.tts : models && Object.hasOwn(models, model) ? models[model] : undefined;
  return value === undefined ? undefined : { value, source: 'profile', name: profileName.value };
}

// The paths that the specification appends to the base URL (4 and 9). A base URL must not contain them itself.
const ownPath = /^\/?(.*\/)?(v1beta|v1|api\/v3)(\/|$)/;

/**
 * Normalizes a base URL: scheme, host, port, and an optional path prefix, without a slash at the end. Protocol B is
 * served at the root (specification 4.2), so a prefix is only for a gateway behind a proxy.
 * @throws Error whose message says what is allowed. It does not contain a URL with credentials.
 */
export function parseBaseUrl(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:\/\/[^/\\]/i.test(text) || /[\s\\\p{Cc}]/u.test(text))
    throw new Error('an address such as https://gateway.example.com');
  if (url.username !== '' || url.password !== '' || /^[^?#]*\/\/[^/?#]*@/.test(text))
    throw new Error('an address without user name and password (to set the key, use mgw auth login)');
  if (/[?#]/.test(text)) throw new Error('an address without a query and without #');
  const own = ownPath.exec(url.pathname)?.[2];
  if (own !== undefined) throw new Error(`an address without /${own}, which mgw adds`);
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error(
      'an https:// address, because http:// exposes the key to the network (to allow it: --allow-http)',
    );
  return url.origin + url.pathname.replace(/(?<!\/)\/+$/, '');
}

/** Normalizes an origin (`https://host:port`). @throws Error whose message says what is allowed. */
export function parseOrigin(text: string, allowHttp: boolean): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const bare = /^https?:\/\/[^/\\?#@\s]+\/?$/i.test(text);
  if (url === undefined || !bare)
    throw new Error('an origin such as https://files.example.com, with no path');
  if (url.protocol === 'http:' && !allowHttp && !isLoopbackHost(url.hostname))
    throw new Error('an https:// origin, because the key is sent there (to allow http://: --allow-http)');
  return url.origin;
}
