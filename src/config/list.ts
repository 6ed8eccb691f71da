import { formatDuration } from '../clock.ts';
import { messageOf } from '../errors.ts';
import { isObject } from '../json.ts';
import {
  folderSetting,
  resolveBaseUrl,
  resolveCAuth,
  resolveNoInput,
  resolveOrigins,
  resolvePollInterval,
  resolveSandbox,
} from './derived.ts';
import { findKey } from './key.ts';
import { type Layers, type Origin, read, type Setting } from './layers.ts';
import { configFolder, stateFolder, type Host } from './places.ts';
import { shownUrl } from '../state-url.ts';
import { rules } from './rules.ts';

/** A displayed value. Durations are texts with their unit. */
export type ShownValue = string | number | boolean | string[];

/** One setting as `mgw config list` shows it. */
export interface SettingRow extends Origin {
  key: string;
  /** Absent if the setting has no value. The API key is never shown. */
  value?: ShownValue;
  /** The reason why the value cannot be used. */
  problem?: string;
}

/** Shown in place of the API key. */
export const hiddenKey = '(hidden)';

/** Returns every setting with its source, including invalid ones. Never throws. */
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
      return { ...origin, value: value === undefined ? value : shownUrl(value) };
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
