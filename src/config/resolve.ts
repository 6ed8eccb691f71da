import { MgwError } from '../errors.ts';
import type { AuthScheme } from '../exchange.ts';
import type { JobKind } from '../job.ts';
import {
  defaultsFor,
  folderSetting,
  priceOf,
  resolveBaseUrl,
  resolveCAuth,
  resolveNoInput,
  resolveOrigins,
  resolvePollInterval,
  resolveSandbox,
  servedSandbox,
} from './derived.ts';
import { findKey, type KeyFound, readKeyFile } from './key.ts';
import { chooseProfile, type Layers, readRules, type RuleSettings, type Setting } from './layers.ts';
import { configFolder, stateFolder, thisHost, type Host } from './places.ts';
import type { SettingFlags } from './rules.ts';
import type { ConfigFile, FlagDefault } from './schema.ts';

/** Everything that the settings are resolved from. */
export interface ResolveInput {
  flags: SettingFlags;
  env: Layers['env'];
  file: ConfigFile;
  /** The machine whose folders are used; default: this machine. */
  host?: Host;
  /** Reads the file that MGW_API_KEY_FILE names; called only if the key is needed. */
  readKeyFile?: (path: string) => string;
}

/** Every setting with its source (design 3). Durations are in ms. */
export interface Settings extends RuleSettings {
  /** The environment variables of the settings. */
  env: Layers['env'];
  profile: Setting<string>;
  /** Absent if it is missing or invalid: call {@link requireBaseUrl}. */
  baseUrl?: Setting<string>;
  /** The error for an invalid base URL. */
  baseUrlProblem?: MgwError;
  /** The source of the key, which only {@link requireKey} reads. */
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
  /** The profile's defaults for a model, by long flag name without dashes (`aspect-ratio`). */
  defaultsFor: (protocol: string, model: string | undefined) => Record<string, FlagDefault>;
  /** The profile's defaults for all models, unparsed. */
  videoDefaults: Readonly<Record<string, unknown>> | undefined;
  /** The configured price of a model. */
  priceOf: (kind: JobKind, model: string) => Setting<string> | undefined;
}

/**
 * Resolves the settings: a flag overrides the environment, which overrides the profile, which overrides the default. A
 * missing or invalid base URL or key is not an error here, and no file is read.
 * @throws MgwError('usage' | 'config') that names the value, its source and what is allowed.
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

/** Returns the layers in which settings are looked up. @throws MgwError('config') if the profile does not exist. */
export function layersOf(input: Pick<ResolveInput, 'flags' | 'env' | 'file'>): Layers {
  const { flags, env, file } = input;
  const profileName = chooseProfile(flags.profile, env, file);
  const profile = Object.hasOwn(file.profiles, profileName.value) ? file.profiles[profileName.value] : {};
  return { flags, env, profileName, profile: profile ?? {} };
}

/**
 * Returns the base URL.
 * @throws MgwError('config' | 'usage'), exit 2, if it is missing or invalid. The message says how to set it, and how to
 * use the sandbox.
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
 * @throws MgwError('config'), exit 2, if it is missing or invalid. The message says how to set it, and contains no part
 * of the key.
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
