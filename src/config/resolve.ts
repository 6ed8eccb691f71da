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

/** All that settings are made of; nothing else is looked at. */
export interface ResolveInput {
  flags: SettingFlags;
  env: Layers['env'];
  file: ConfigFile;
  /** Default: this machine. */
  host?: Host;
  /** Reads the file that MGW_API_KEY_FILE names; called only when the key is asked for. */
  readKeyFile?: (path: string) => string;
}

/** Every setting with its source (design 3); durations are in ms. */
export interface Settings extends RuleSettings {
  /** The variables that the settings were read from. */
  env: Layers['env'];
  profile: Setting<string>;
  /** Absent if none is configured or if it cannot be used: ask {@link requireBaseUrl}. */
  baseUrl?: Setting<string>;
  /** Why the base URL that is configured cannot be used. */
  baseUrlProblem?: MgwError;
  /** Where the key is to be found; it is read by {@link requireKey} alone. */
  key?: KeyFound;
  /** Origins beyond the gateway's own site that may get the key, those of the flag and of the profile. */
  trustedOrigins: Setting<string[]>;
  /** How Protocol C gets the key (specification 5.5). */
  cAuth: Setting<AuthScheme>;
  sandbox: Setting<boolean>;
  /** The address of a running sandbox; absent if the command embeds its own. */
  sandboxUrl?: string;
  noInput: Setting<boolean>;
  configDir: Setting<string>;
  stateDir: Setting<string>;
  /** The profile's defaults for a model, by long flag name without dashes (`aspect-ratio`). */
  defaultsFor: (protocol: string, model: string | undefined) => Record<string, FlagDefault>;
  /** All of these, as the profile has them. */
  videoDefaults: Readonly<Record<string, unknown>> | undefined;
  /** The price of a model as it is configured. */
  priceOf: (kind: JobKind, model: string) => Setting<string> | undefined;
}

/**
 * Puts the settings together: flag over environment over profile over default. A missing or unusable base
 * URL or key is no error here, and no file is read.
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

/** The layers that settings are looked up in. @throws MgwError('config') if the profile does not exist. */
export function layersOf(input: Pick<ResolveInput, 'flags' | 'env' | 'file'>): Layers {
  const { flags, env, file } = input;
  const profileName = chooseProfile(flags.profile, env, file);
  const profile = Object.hasOwn(file.profiles, profileName.value) ? file.profiles[profileName.value] : {};
  return { flags, env, profileName, profile: profile ?? {} };
}

/**
 * The base URL. @throws MgwError('config' | 'usage'), exit 2, if there is none or it cannot be used; the
 * message names both ways on.
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
 * The API key, read and checked now. @throws MgwError('config'), exit 2, if there is none or it cannot be
 * sent; the message names both ways on and holds no part of the key.
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
