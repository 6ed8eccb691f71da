import { readConfig } from '../config/read.ts';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../config/resolve.ts';
import type { Gateway } from './gateway.ts';
import type { Globals } from './globals.ts';

/** The settings of one run: flags, environment and config file put together (design 3). */
export async function loadSettings(globals: Globals, env: NodeJS.ProcessEnv): Promise<Settings> {
  return resolveSettings({ flags: globals, env, file: await readConfig(env) });
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
