import { MgwError } from '../errors.ts';
import { type AuthScheme, isLoopbackHost } from '../exchange.ts';
import type { JobKind } from '../job.ts';
import { resolveBaseUrl, resolveOrigins } from './base-url.ts';
import { findKey, type KeyFound, readKeyFile } from './key.ts';
import {
  badSetting,
  chooseProfile,
  type Layers,
  read,
  readRules,
  type RuleSettings,
  type Setting,
} from './layers.ts';
import { configFolder, type Folder, stateFolder, thisHost, type Host } from './places.ts';
import { boolean, type Rule, rules, type SettingFlags } from './rules.ts';
import type { ConfigFile, FlagDefault } from './schema.ts';

/** The sources of the settings. */
export interface ResolveInput {
  flags: SettingFlags;
  env: Layers['env'];
  file: ConfigFile;
  /** The machine whose folders are used. Default: the local machine. */
  host?: Host;
  /** Reads the file at MGW_API_KEY_FILE. Called only if the key is needed. */
  readKeyFile?: (path: string) => string;
}

/** Every setting with its source (design 3). Durations are in ms. */
export interface Settings extends RuleSettings {
  /** The environment variables that the settings were read from. */
  env: Layers['env'];
  profile: Setting<string>;
  /** The base URLs of all profiles that have one, by profile name. */
  baseUrls: Readonly<Record<string, string>>;
  /** The base URL; absent if it is missing or invalid. Use {@link requireBaseUrl} if it is required. */
  baseUrl?: Setting<string>;
  /** The error for an invalid base URL. */
  baseUrlProblem?: MgwError;
  /** The source of the key. Only {@link requireKey} reads the key. */
  key?: KeyFound;
  /** Origins other than the gateway's own that may receive the key, from the flag and the profile. */
  trustedOrigins: Setting<string[]>;
  /** How Protocol C sends the key (specification 5.5). */
  cAuth: Setting<AuthScheme>;
  sandbox: Setting<boolean>;
  /** The address of a running sandbox; absent if the command starts its own. */
  sandboxUrl?: string;
  noInput: Setting<boolean>;
  configDir: Setting<string>;
  stateDir: Setting<string>;
  /** Returns the profile's defaults for a model, by long flag name without dashes (`aspect-ratio`). */
  defaultsFor: (protocol: string, model: string | undefined) => Record<string, FlagDefault>;
  /** The profile's defaults for all models, unparsed. */
  videoDefaults: Readonly<Record<string, unknown>> | undefined;
  /** Returns a model's configured price; undefined if there is none. */
  priceOf: (kind: JobKind, model: string) => Setting<string> | undefined;
}

/**
 * Resolves the settings. A flag overrides the environment, which overrides the profile, which overrides the default. A
 * missing or invalid base URL or key is not an error here, and no file is read.
 * @throws MgwError('usage' | 'config') that contains the value, its source and the allowed values.
 */
export function resolveSettings(input: ResolveInput): Settings {
  const layers = layersOf(input);
  const host = input.host ?? thisHost();
  const own = readRules(layers);
  const base = resolveBaseUrl(layers, own.allowHttp.value);
  const sandbox = resolveSandbox(layers);
  return {
    ...own,
    env: input.env,
    profile: layers.profileName,
    baseUrls: Object.fromEntries(
      Object.entries(input.file.profiles).flatMap(([name, { base_url: url }]) =>
        url === undefined ? [] : [[name, url]],
      ),
    ),
    ...base,
    key: findKey(layers, input.readKeyFile ?? readKeyFile),
    trustedOrigins: resolveOrigins(layers, own.allowHttp.value),
    pollIntervalMs: resolvePollInterval(layers, sandbox.value, base.baseUrl),
    cAuth: resolveCAuth(layers),
    sandbox,
    sandboxUrl: servedSandbox(layers),
    noInput: resolveNoInput(layers),
    configDir: folderSetting(configFolder(input.env, host)),
    stateDir: folderSetting(stateFolder(input.env, host)),
    defaultsFor: (protocol, model) => defaultsFor(layers, protocol, model),
    videoDefaults: layers.profile.defaults?.video,
    priceOf: (kind, model) => priceOf(layers, kind, model),
  };
}

/** Returns the layers to search for settings. @throws MgwError('config') if the profile does not exist. */
export function layersOf(input: Pick<ResolveInput, 'flags' | 'env' | 'file'>): Layers {
  const { flags, env, file } = input;
  const profileName = chooseProfile(flags.profile, env, file);
  const profile = Object.hasOwn(file.profiles, profileName.value) ? file.profiles[profileName.value] : {};
  return { flags, env, profileName, profile: profile ?? {} };
}

/**
 * Returns the pause between polls, in ms. The specification (8) recommends 5 to 10 seconds. The pause may be shorter on
 * loopback, because there is no server to protect.
 * @throws MgwError if the pause is too short.
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
 * Returns how Protocol C sends the key (specification 5.5). By default, Authorization contains a scheme and the key,
 * and any other header contains only the key.
 * @throws MgwError if the header or the scheme is invalid.
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
 * @throws MgwError if MGW_SANDBOX is not yes, no, or the address of a sandbox, because a guess could spend money.
 */
export function resolveSandbox(layers: Layers): Setting<boolean> {
  return read(sandboxRule, { ...layers, profile: {} });
}

/** Returns the address of a running sandbox if MGW_SANDBOX contains one (`mgw sandbox exec`, design 9). */
function servedSandbox({ env }: Layers): string | undefined {
  const address = env['MGW_SANDBOX'] ?? '';
  return sandboxAddress.test(address) ? address : undefined;
}

// A sandbox must be on this machine.
const sandboxAddress = /^http:\/\/127\.0\.0\.1:[1-9]\d{0,4}$/;

function yesNoOrAddress(value: unknown): boolean {
  if (sandboxAddress.test(String(value))) return true;
  try {
    return boolean(value);
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

/** Whether `--no-input`, MGW_NO_INPUT or CI forbids prompts. @throws MgwError if a variable is neither yes nor no. */
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
function defaultsFor(
  layers: Layers,
  protocol: string,
  model: string | undefined,
): Record<string, FlagDefault> {
  const models = layers.profile.defaults?.video?.[protocol] ?? {};
  if (model === undefined || !Object.hasOwn(models, model)) return {};
  const entries = Object.entries(models[model] ?? {});
  return Object.fromEntries(entries.map(([name, value]) => [name.replaceAll('_', '-'), value]));
}

/** Returns a model's configured price; undefined if there is none. Speech has only one model. */
function priceOf(
  { profile, profileName }: Layers,
  kind: JobKind,
  model: string,
): Setting<string> | undefined {
  const models = kind === 'tts' ? undefined : profile.prices?.[kind];
  const value =
    kind === 'tts' ? profile.prices?.tts : models && Object.hasOwn(models, model) ? models[model] : undefined;
  return value === undefined ? undefined : { value, source: 'profile', name: profileName.value };
}

/**
 * Returns the base URL.
 * @throws MgwError('config' | 'usage'), exit 2, if the URL is missing or invalid. The message explains how to set
 * the URL, and how to use the sandbox.
 */
export function requireBaseUrl(settings: Settings): URL {
  if (settings.baseUrlProblem) throw settings.baseUrlProblem;
  if (settings.baseUrl) return new URL(settings.baseUrl.value);
  throw new MgwError(
    'config',
    'No gateway is configured. Run "mgw auth login --base-url https://…" once or set MGW_BASE_URL; ' +
      'or add --sandbox to try mgw offline and free of charge.',
    { next: ['mgw', 'auth', 'login', '--base-url', 'URL'] },
  );
}

/**
 * Reads and checks the API key.
 * @throws MgwError('config'), exit 2, if the key is missing or invalid. The message explains how to set
 * the key, and contains no part of it.
 */
export function requireKey(settings: Settings): string {
  if (settings.key) return settings.key.read();
  throw new MgwError(
    'config',
    `There is no API key in the profile "${settings.profile.value}". Run "mgw auth login" once or set ` +
      'MGW_API_KEY; or add --sandbox to try mgw offline and free of charge.',
    { next: ['mgw', 'auth', 'login'] },
  );
}
