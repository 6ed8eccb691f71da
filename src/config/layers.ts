import { messageOf, MgwError, usageError } from '../errors.ts';
import { at } from '../json.ts';
import { printableLine } from '../printable.ts';
import { type Rule, rules, type SettingFlags } from './rules.ts';
import type { ConfigFile, Profile } from './schema.ts';

/** Environment variables by name. */
export type Env = Readonly<Record<string, string | undefined>>;

/** The source of a setting's value. */
export interface Origin {
  source: 'flag' | 'env' | 'profile' | 'default';
  /** The name of the flag, variable or profile; absent for a default. */
  name?: string;
}

/** A setting's value with its source. */
export interface Setting<T> extends Origin {
  value: T;
}

/** The sources of settings, in search order. */
export interface Layers {
  flags: SettingFlags;
  env: Env;
  profileName: Setting<string>;
  profile: Profile;
}

/** Returns the unparsed value from the first layer that has one; undefined if no layer has a value. */
export function lookUp(
  rule: Pick<Rule<unknown>, 'key' | 'path' | 'flag' | 'env'>,
  layers: Layers,
): Setting<unknown> | undefined {
  const flagValue = rule.flag && layers.flags[rule.flag.field];
  if (rule.flag && flagValue !== undefined) return { value: flagValue, source: 'flag', name: rule.flag.name };
  const variable = rule.env && layers.env[rule.env];
  if (rule.env && variable) return { value: variable, source: 'env', name: rule.env };
  const profileValue = at(layers.profile, rule.path ?? rule.key);
  return profileValue === undefined
    ? undefined
    : { value: profileValue, source: 'profile', name: layers.profileName.value };
}

/**
 * Returns a setting as parsed by its rule, or its default.
 * @throws MgwError('usage' | 'config') that contains the value, its source and the allowed values.
 */
export function read<T>(rule: Rule<T>, layers: Layers): Setting<T> {
  const raw = lookUp(rule, layers);
  if (raw === undefined) return { value: rule.fallback, source: 'default' };
  try {
    return { ...raw, value: rule.parse(raw.value) };
  } catch (error) {
    throw badSetting(rule.key, raw, rule.isSecret ? '' : String(raw.value) || '""', error);
  }
}

/** The settings that the rules define, each with its source. */
export type RuleSettings = {
  [Name in keyof typeof rules]: (typeof rules)[Name] extends Rule<infer T> ? Setting<T> : never;
};

/** Reads all settings. @throws MgwError as {@link read} does. */
export function readRules(layers: Layers): RuleSettings {
  const settings = Object.entries(rules).map(([name, rule]) => [name, read<unknown>(rule, layers)]);
  return Object.fromEntries(settings) as RuleSettings;
}

/** Describes a setting's source: `flag --timeout`, `environment MGW_TIMEOUT`, `profile work` or `default`. */
export function originText({ source, name }: Origin): string {
  if (source === 'default') return 'default';
  return `${source === 'env' ? 'environment' : source} ${name ?? ''}`.trim();
}

/**
 * Returns the error for an invalid value (exit 2): `usage` if the value came from a flag, `config` otherwise.
 * `shown` is the value, or '' to hide it.
 */
export function badSetting(key: string, origin: Origin, shown: string, cause: unknown): MgwError {
  const { source, name } = origin;
  const where = source === 'flag' || source === 'env' ? name : `${key} in ${originText(origin)}`;
  // Hides a value that may contain a password, before an @ or in a query.
  const value = shown === '' || /@|password/i.test(shown) ? '' : ` ${printableLine(shown, 80)}`;
  const message = `${where ?? key}${value}: must be ${messageOf(cause)}.`;
  return new MgwError(source === 'flag' ? 'usage' : 'config', message, { cause });
}

/** The profile to use if the user specifies none. */
const defaultProfile = 'default';

/** Checks a profile's name. @throws MgwError('usage') that states the allowed values. */
export function checkProfileName(name: string): string {
  if (/^[A-Za-z0-9][\w.-]{0,63}$/.test(name) && !/^(constructor|prototype)$/.test(name)) return name;
  throw usageError(
    'A profile name begins with a letter or digit, contains only letters, digits, ".", "_" and "-", and has at most 64 characters.',
  );
}

/**
 * Returns the name of the profile in use, even if the profile does not exist. The name is from the flag, MGW_PROFILE or
 * the config file, or else `default`.
 * @throws MgwError('usage') if the name is invalid.
 */
export function namedProfile(flag: string | undefined, env: Env, file: ConfigFile): Setting<string> {
  if (flag !== undefined) return { value: checkProfileName(flag), source: 'flag', name: '--profile' };
  const variable = env['MGW_PROFILE'];
  if (variable) return { value: checkProfileName(variable), source: 'env', name: 'MGW_PROFILE' };
  if (file.profile === undefined) return { value: defaultProfile, source: 'default' };
  const value = checkProfileName(file.profile);
  return { value, source: 'profile', name: value };
}

/**
 * Like {@link namedProfile}, but requires the profile to exist.
 * @throws MgwError('config') if a named profile does not exist.
 */
export function chooseProfile(flag: string | undefined, env: Env, file: ConfigFile): Setting<string> {
  const chosen = namedProfile(flag, env, file);
  if (chosen.value === defaultProfile || Object.hasOwn(file.profiles, chosen.value)) return chosen;
  const profileNames = Object.keys(file.profiles);
  throw new MgwError(
    'config',
    `There is no profile "${chosen.value}"${profileNames.length > 0 ? `; available: ${profileNames.join(', ')}` : ''}. ` +
      `"mgw auth login --profile ${chosen.value}" creates it.`,
    { next: ['mgw', 'auth', 'login', '--profile', chosen.value] },
  );
}
