import { messageOf, MgwError } from '../errors.ts';
import { at } from '../json.ts';
import { printableLine } from '../printable.ts';
import type { Rule, SettingFlags } from './rules.ts';
import type { Profile } from './schema.ts';

/** Where a setting is looked up, from the first to the last: flags, environment, profile. */
export interface Layers {
  flags: SettingFlags;
  env: Env;
  profileName: Setting<string>;
  profile: Profile;
}

/** The raw value of the first layer that has one; undefined where none has. */
export function lookUp(
  rule: Pick<Rule<unknown>, 'key' | 'flag' | 'env'>,
  layers: Layers,
): Setting<unknown> | undefined {
  const given = rule.flag && layers.flags[rule.flag.field];
  if (rule.flag && given !== undefined) return { value: given, source: 'flag', name: rule.flag.name };
  const variable = rule.env && layers.env[rule.env];
  if (rule.env && variable) return { value: variable, source: 'env', name: rule.env };
  const kept = at(layers.profile, rule.key);
  return kept === undefined ? undefined : { value: kept, source: 'profile', name: layers.profileName.value };
}

/**
 * A setting as its rule reads it, or the rule's fallback.
 * @throws MgwError('usage' | 'config') naming the value, where it came from and what is allowed.
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

/** Environment variables by name. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Where a value came from. */
export interface Origin {
  source: 'flag' | 'env' | 'profile' | 'default';
  /** The flag, the variable, or the profile; absent for a default. */
  name?: string;
}

/** A value with its origin. */
export interface Setting<T> extends Origin {
  value: T;
}

/** An origin in words: `flag --timeout`, `environment MGW_TIMEOUT`, `profile work`, `default`. */
export function originText({ source, name }: Origin): string {
  if (source === 'default') return 'default';
  return `${source === 'env' ? 'environment' : source} ${name ?? ''}`.trim();
}

/**
 * The error for a value that cannot be used: `usage` where a flag gave it, `config` elsewhere, exit 2 both.
 * `shown` is the value, '' for none.
 */
export function badSetting(key: string, origin: Origin, shown: string, cause: unknown): MgwError {
  const { source, name } = origin;
  const where = source === 'flag' || source === 'env' ? name : `${key} in ${originText(origin)}`;
  // What stands before an @ may be a password, and an address may hold one in its query.
  const value = shown === '' || /@|password/i.test(shown) ? '' : ` ${printableLine(shown, 80)}`;
  const message = `${where ?? key}${value}: allowed is ${messageOf(cause)}.`;
  return new MgwError(source === 'flag' ? 'usage' : 'config', message, { cause });
}
