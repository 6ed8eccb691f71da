import { formatDuration } from '../clock.ts';
import { nearestName } from '../nearest.ts';
import { messageOf, usageError } from '../errors.ts';
import { isObject, type JsonObject } from '../json.ts';
import { resolveBaseUrl, resolveOrigins, parseBaseUrl, parseOrigin } from './base-url.ts';
import { findKey } from './key.ts';
import { type Layers, type Origin, read, type Setting } from './layers.ts';
import { configFolder, stateFolder, type Host } from './places.ts';
import { maskPassword, hasPassword } from '../state-url.ts';
import {
  folderSetting,
  resolveCAuth,
  resolveNoInput,
  resolvePollInterval,
  resolveSandbox,
} from './resolve.ts';
import { rules } from './rules.ts';
import type { FlagDefault, Profile } from './schema.ts';

/** The settings that `mgw config set` can change, in addition to models' defaults and prices. */
export const settableKeys: readonly string[] = [
  'base_url',
  'trusted_origins',
  ...Object.values(rules).map((rule) => rule.key),
];

/** A setting's path in a profile. */
export type KeyPath = readonly [string, ...string[]];

/**
 * Splits a dotted name into a path. In `defaults.video.a.veo-3.1-fast.duration`, the last step is the flag, which
 * contains no dot. Everything between the protocol and the flag is the model's name, which may contain dots.
 * @throws MgwError('usage') that suggests the same subcommand and words with the most similar setting, or lists the
 * settings.
 */
export function keyPath(
  name: string,
  subcommand: 'get' | 'set' | 'unset' = 'get',
  words: readonly string[] = [],
): KeyPath {
  if (name === 'store') return ['store', 'url'];
  if (settableKeys.includes(name) || name === 'api_key') return name.split('.') as [string, ...string[]];
  const [, protocol, model, flag] =
    /^defaults\.video\.([a-z][a-z0-9-]*)\.(.+)\.([a-z][a-z0-9_-]*)$/.exec(name) ?? [];
  if (protocol !== undefined && model !== undefined && flag !== undefined) {
    checkModelName(model);
    return ['defaults', 'video', protocol, model, flag.replaceAll('_', '-')];
  }
  const [, priced, pricedModel] = /^prices\.([a-z][a-z0-9-]*)\.(.+)$/.exec(name) ?? [];
  if (priced !== undefined && pricedModel !== undefined) {
    checkModelName(pricedModel);
    return ['prices', priced, pricedModel];
  }
  const near = nearestName(name, ['profile', 'store', ...settableKeys]);
  if (near !== undefined) {
    // A URL may contain a password, which must not be printed.
    const rest = words.join().includes('@') ? ['get', near] : [subcommand, near, ...words];
    throw usageError(`There is no setting "${name}". Did you mean ${near}?`, ['mgw', 'config', ...rest]);
  }
  throw usageError(
    `There is no setting "${name}". Available: profile, ${settableKeys.join(', ')}, ` +
      'prices.PROTOCOL.MODEL, and defaults.video.PROTOCOL.MODEL.FLAG such as defaults.video.a.veo-3.duration.',
  );
}

function checkModelName(model: string): void {
  if (/^(__proto__|constructor|prototype)$/.test(model) || /\p{Cc}|[^\S ]|^ | $/u.test(model))
    throw usageError(`${JSON.stringify(model)} is not a valid model name.`);
}

/**
 * Converts words from the command line to the value to store in a profile.
 * @throws Error whose message states the allowed values.
 */
export function storedValue(path: KeyPath, words: readonly string[], profile: Profile): FlagDefault {
  const allowHttp = profile.allow_http ?? false;
  const name = path.join('.');
  if (name === 'trusted_origins')
    return words.flatMap((word) => word.split(',')).map((word) => parseOrigin(word, allowHttp));
  if (name === 'store.command') rules.storeCommand.parse(words);
  if ((path[0] === 'defaults' && words.length > 1) || name === 'store.command') return [...words];
  if (isPrice(path) && words.length > 0) return words.join('; ');
  const [word, ...more] = words;
  if (word === undefined || more.length > 0) throw new Error('one value');
  if (name === 'state' && hasPassword(word))
    throw new Error(
      'an address without a password, because other users can see command lines; use PGPASSWORD or ~/.pgpass',
    );
  if (name === 'base_url') return parseBaseUrl(word, allowHttp);
  if (path[0] === 'defaults') return plainValue(word);
  const parsed = Object.values(rules)
    .find((rule) => (rule.path ?? rule.key) === name)
    ?.parse(word);
  // Stores a duration as written, because its value in ms would have no unit.
  return typeof parsed === 'boolean' || isCount(name) ? (parsed as boolean | number) : word;
}

/** Whether the path is that of a model's price. A price consists of several words, one for each rate. */
export function isPrice(path: KeyPath): boolean {
  return path[0] === 'prices' && (path.length === 3 || path[1] === 'tts');
}

function isCount(name: string): boolean {
  return ['retries', 'tts.sample_rate', 'sandbox.concurrency', 'sandbox.per_minute'].includes(name);
}

// Converts a word that looks like a boolean or a number. A number is converted only if it prints as the same word.
function plainValue(word: string): FlagDefault {
  if (word === 'true' || word === 'false') return word === 'true';
  return String(Number(word)) === word && Number.isFinite(Number(word)) ? Number(word) : word;
}

/**
 * Returns a copy of a profile with one value changed. `undefined` removes the value, and any object that becomes empty.
 */
export function withValue<T extends object>(profile: T, [step, ...rest]: KeyPath, value: unknown): T {
  const copy = { ...profile } as JsonObject;
  const inner = isObject(copy[step]) ? copy[step] : {};
  const next = isPath(rest) ? withValue(inner, rest, value) : value;
  const empty = next === undefined || (isPath(rest) && isObject(next) && Object.keys(next).length === 0);
  if (empty) Reflect.deleteProperty(copy, step);
  else copy[step] = next as JsonObject;
  return copy as T;
}

function isPath(steps: readonly string[]): steps is KeyPath {
  return steps.length > 0;
}

/** A setting's value as displayed. A duration is text with its unit. */
export type ShownValue = string | number | boolean | string[];

/** A setting as `mgw config list` prints it. */
export interface SettingRow extends Origin {
  key: string;
  /** The value to display; absent if the setting has none. The API key is never displayed. */
  value?: ShownValue;
  /** The reason why the value cannot be used. */
  problem?: string;
}

/** The text displayed in place of the API key. */
export const hiddenKey = '(hidden)';

/** Returns every setting with its source, including invalid settings. Never throws. */
export function listSettings(layers: Layers, host: Host): SettingRow[] {
  const allowHttp = (): boolean => read(rules.allowHttp, layers).value;
  const key = findKey(layers, () => '');
  return [
    { key: 'profile', ...layers.profileName },
    row('base_url', () => {
      const { baseUrl, baseUrlProblem } = resolveBaseUrl(layers, allowHttp());
      if (baseUrlProblem) throw baseUrlProblem;
      return baseUrl ?? none;
    }),
    row('api_key', () => (key ? { source: key.source, name: key.name, value: hiddenKey } : none)),
    row('trusted_origins', () => resolveOrigins(layers, allowHttp())),
    ...ruleRows(layers),
    row('sandbox', () => resolveSandbox(layers)),
    row('no_input', () => resolveNoInput(layers)),
    row('config_dir', () => folderSetting(configFolder(layers.env, host))),
    row('state_dir', () => folderSetting(stateFolder(layers.env, host))),
    ...modelRows(layers),
  ];
}

const none: Setting<undefined> = { value: undefined, source: 'default' };

function ruleRows(layers: Layers): SettingRow[] {
  const special: Record<string, () => Setting<ShownValue | undefined>> = {
    'c.auth_header': () => {
      const auth = resolveCAuth(layers);
      return { ...auth, value: auth.value.header };
    },
    'c.auth_scheme': () => {
      const own = read(rules.cAuthScheme, layers);
      return own.value === undefined ? { ...own, value: resolveCAuth(layers).value.scheme } : own;
    },
    state: () => {
      const { value, ...origin } = read(rules.state, layers);
      return { ...origin, value: value === undefined ? value : maskPassword(value) };
    },
    poll_interval: () => asDuration(pollInterval(layers)),
  };
  return Object.entries(rules).map(([name, rule]) =>
    row(rule.key, () => {
      const setting = special[rule.key]?.() ?? read<ShownValue | undefined>(rule, layers);
      return name.endsWith('Ms') ? asDuration(setting) : setting;
    }),
  );
}

function pollInterval(layers: Layers): Setting<number> {
  const { baseUrl } = resolveBaseUrl(layers, read(rules.allowHttp, layers).value);
  return resolvePollInterval(layers, resolveSandbox(layers).value, baseUrl);
}

function asDuration(setting: Setting<ShownValue | undefined>): Setting<ShownValue | undefined> {
  return typeof setting.value === 'number' ? { ...setting, value: formatDuration(setting.value) } : setting;
}

function modelRows({ profile, profileName }: Layers): SettingRow[] {
  const origin: Origin = { source: 'profile', name: profileName.value };
  const leaves = (value: unknown, path: string): SettingRow[] =>
    isObject(value)
      ? Object.entries(value).flatMap(([step, member]) => leaves(member, `${path}.${step}`))
      : value === undefined
        ? []
        : [{ key: path, value: value as ShownValue, ...origin }];
  const { a, b, c } = profile.prices ?? {};
  return [...leaves({ a, b, c }, 'prices'), ...leaves(profile.defaults ?? {}, 'defaults')];
}

function row(key: string, resolve: () => Setting<ShownValue | undefined>): SettingRow {
  try {
    const { value, source, name } = resolve();
    return { key, ...(value !== undefined && { value }), source, ...(name !== undefined && { name }) };
  } catch (error) {
    return { key, source: 'default', problem: messageOf(error) };
  }
}
