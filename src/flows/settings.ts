import { createHmac } from 'node:crypto';
import { readConfig } from '../config/read.ts';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import { nameOfGateway, sandboxName } from './places.ts';

/** A gateway of the settings, or the embedded sandbox. */
export interface Gateway {
  baseUrl: URL;
  key: string;
  /** The name of the gateway in the records (`base_url`). */
  name: string;
  /** The shortest pause between two polls of one job, ms. */
  pollIntervalMs: number;
}

/** Reads the settings of one run: flags, environment and config file put together (design 3). */
export async function loadSettings(flags: SettingFlags, env: NodeJS.ProcessEnv): Promise<Settings> {
  return resolveSettings({ flags, env, file: await readConfig(env) });
}

/** Returns the gateway of the settings. @throws MgwError('config') if no base URL or no key is configured. */
export function realGateway(settings: Settings): Gateway {
  const baseUrl = requireBaseUrl(settings);
  return {
    baseUrl,
    key: requireKey(settings),
    name: nameOfGateway(baseUrl.href),
    pollIntervalMs: settings.pollIntervalMs.value,
  };
}

/** Returns the gateway of a sandbox. It is loopback and free, so it is polled more often than a real one. */
export function sandboxGateway(
  { pollIntervalMs: { source, value } }: Settings,
  { url, key }: { url: string; key: string },
): Gateway {
  return {
    baseUrl: new URL(url),
    key,
    name: sandboxName,
    pollIntervalMs: source === 'default' ? 200 : value,
  };
}

/** Returns a label that tells accounts apart in the ledger; the key cannot be derived from it. */
export function accountOf(key: string): string {
  return createHmac('sha256', key).update('mgw account').digest('hex').slice(0, 16);
}
