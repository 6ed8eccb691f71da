import { MgwError } from '../errors.ts';
import type { AuthScheme } from '../exchange.ts';
import type { JobKind, ProtocolName } from '../job.ts';
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
import { type Layers, read, type Setting } from './layers.ts';
import { configFolder, stateFolder, thisHost, type Host } from './places.ts';
import { chooseProfile } from './profile.ts';
import { rules, type SettingFlags } from './rules.ts';
import type { ConfigFile, FlagDefault } from './schema.ts';

/** All that settings are made of; nothing else is looked at. */
export interface ResolveInput {
  flags: SettingFlags;
  env: Layers['env'];
  file: ConfigFile;
  /** This machine, where nothing else is given. */
  host?: Host;
  /** Reads the file that MGW_API_KEY_FILE names; called only when the key is asked for. */
  readKeyFile?: (path: string) => string;
}

/** Every setting with its source (design 3); durations are in ms. */
export interface Settings {
  profile: Setting<string>;
  /** Absent where none is configured or where it cannot be used: ask {@link requireBaseUrl}. */
  baseUrl?: Setting<string>;
  /** Why the base URL that is configured cannot be used. */
  baseUrlProblem?: MgwError;
  /** Where the key is to be found; it is read by {@link requireKey} alone. */
  key?: KeyFound;
  allowHttp: Setting<boolean>;
  /** Origins beyond the gateway's own site that may get the key, those of the flag and of the profile. */
  trustedOrigins: Setting<string[]>;
  timeoutMs: Setting<number>;
  pollIntervalMs: Setting<number>;
  /** Undefined leaves it to the kind of request. */
  requestTimeoutMs: Setting<number | undefined>;
  retries: Setting<number>;
  submitRetry5xx: Setting<boolean>;
  ttsSpeaker: Setting<string | undefined>;
  ttsFormat: Setting<string | undefined>;
  ttsSampleRate: Setting<number | undefined>;
  /** The address of a ledger that is shared, which may hold a password; undefined for that of this machine. */
  state: Setting<string | undefined>;
  /** The standing budget, by its name. */
  budget: Setting<string | undefined>;
  /** The multipliers of specification 8, as texts. */
  groupMultiplier: Setting<string>;
  userMultiplier: Setting<string>;
  /** How Protocol C gets the key (specification 5.5). */
  cAuth: Setting<AuthScheme>;
  sandboxPaceMs: Setting<number | undefined>;
  /** Credits. */
  sandboxBalance: Setting<number | undefined>;
  sandboxConcurrency: Setting<number | undefined>;
  sandboxPerMinute: Setting<number | undefined>;
  sandbox: Setting<boolean>;
  /** The sandbox that is being served already; absent where one of one's own is to be embedded. */
  sandboxUrl?: string;
  noInput: Setting<boolean>;
  configDir: Setting<string>;
  stateDir: Setting<string>;
  /** The profile's defaults for a model, by long flag name without dashes (`aspect-ratio`). */
  defaultsFor: (protocol: ProtocolName, model: string | undefined) => Record<string, FlagDefault>;
  /** All of these, as the profile has them. */
  videoDefaults: unknown;
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
  const allowHttp = read(rules.allowHttp, layers);
  const base = resolveBaseUrl(layers, allowHttp.value);
  const sandbox = resolveSandbox(layers);
  return {
    profile: layers.profileName,
    ...base,
    key: findKey(layers, input.readKeyFile ?? readKeyFile),
    allowHttp,
    trustedOrigins: resolveOrigins(layers, allowHttp.value),
    timeoutMs: read(rules.timeoutMs, layers),
    pollIntervalMs: resolvePollInterval(layers, sandbox.value, base.baseUrl),
    requestTimeoutMs: read(rules.requestTimeoutMs, layers),
    retries: read(rules.retries, layers),
    submitRetry5xx: read(rules.submitRetry5xx, layers),
    ttsSpeaker: read(rules.ttsSpeaker, layers),
    ttsFormat: read(rules.ttsFormat, layers),
    ttsSampleRate: read(rules.ttsSampleRate, layers),
    state: read(rules.state, layers),
    budget: read(rules.budget, layers),
    groupMultiplier: read(rules.groupMultiplier, layers),
    userMultiplier: read(rules.userMultiplier, layers),
    cAuth: resolveCAuth(layers),
    sandboxPaceMs: read(rules.sandboxPaceMs, layers),
    sandboxBalance: read(rules.sandboxBalance, layers),
    sandboxConcurrency: read(rules.sandboxConcurrency, layers),
    sandboxPerMinute: read(rules.sandboxPerMinute, layers),
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

/** The layers that settings are looked up in. @throws MgwError('config') where the profile does not exist. */
export function layersOf(input: Pick<ResolveInput, 'flags' | 'env' | 'file'>): Layers {
  const { flags, env, file } = input;
  const profileName = chooseProfile(flags.profile, env, file);
  const profile = Object.hasOwn(file.profiles, profileName.value) ? file.profiles[profileName.value] : {};
  return { flags, env, profileName, profile: profile ?? {} };
}

/**
 * The base URL. @throws MgwError('config' | 'usage'), exit 2, where there is none or it cannot be used; the
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
 * The API key, read and checked now. @throws MgwError('config'), exit 2, where there is none or it cannot be
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
