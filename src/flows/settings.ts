import { readConfig } from '../config/read.ts';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import type { Gateway } from './gateway.ts';

/** The settings of one run: flags, environment and config file put together (design 3). */
export async function loadSettings(flags: SettingFlags, env: NodeJS.ProcessEnv): Promise<Settings> {
  return resolveSettings({ flags, env, file: await readConfig(env) });
}

/** The gateway of the settings. @throws MgwError('config') where no base URL or no key is configured. */
export function realGateway(settings: Settings): Gateway {
  const baseUrl = requireBaseUrl(settings);
  return {
    baseUrl,
    key: requireKey(settings),
    name: baseUrl.href.replace(/\/$/, ''),
    pollIntervalMs: settings.pollIntervalMs.value,
  };
}
