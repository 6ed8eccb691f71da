import { createHmac } from 'node:crypto';
import { readConfig } from '../config/read.ts';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import type { Protocol } from '../protocols/protocol.ts';

/** A gateway of the settings, or the embedded sandbox. */
export interface Gateway {
  baseUrl: URL;
  key: string;
  /** The name of the gateway in the records (`base_url`). */
  name: string;
  /** The shortest pause between two polls of one job, ms. */
  pollIntervalMs: number;
}

/** The sandbox's constant name in the records: its port changes from run to run. */
const sandboxName = 'sandbox';

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
    name: nameOf(baseUrl),
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

/** Returns the name that the configured gateway has in the records; undefined if none is configured. No key is needed. */
export function gatewayName(settings: Settings): string | undefined {
  if (settings.sandbox.value) return sandboxName;
  return settings.baseUrl === undefined ? undefined : nameOf(requireBaseUrl(settings));
}

function nameOf(baseUrl: URL): string {
  return baseUrl.href.replace(/\/$/, '');
}

/** Returns a label that tells accounts apart in the ledger; the key cannot be derived from it. */
export function accountOf(key: string): string {
  return createHmac('sha256', key).update('mgw account').digest('hex').slice(0, 16);
}

/** Returns the protocol with its settings: the header of Protocol C's key is one of them (specification 5.5). */
export function configured(protocol: Protocol, settings: Settings): Protocol {
  return protocol.name === 'c' ? { ...protocol, auth: settings.cAuth.value } : protocol;
}
