import { at } from '../json.ts';
import type { Env } from './places.ts';
import type { Rule, SettingFlags } from './rules.ts';
import type { Profile } from './schema.ts';
import { badSetting, type Setting } from './source.ts';

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
