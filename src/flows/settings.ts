import { createHmac } from 'node:crypto';
import { join } from 'node:path';
import { readConfig } from '../config/read.ts';
import { requireBaseUrl, requireKey, resolveSettings, type Settings } from '../config/resolve.ts';
import type { SettingFlags } from '../config/rules.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { parseStateUrl, type StateUrl } from '../state-url.ts';
import type { Budget, BudgetKind } from '../budget/budget.ts';
import type { JobDeps } from '../jobs/order.ts';
import type { ObjectStore } from '../store/s3-store.ts';

/** The settings that decide which gateway a command uses. */
export type GatewayChoice = Pick<Settings, 'baseUrls' | 'profile'> & { key?: Settings['key'] | undefined };

/** A flow's dependencies. */
export interface FlowDeps extends JobDeps {
  /** The API key, which is also sent to result URLs on the gateway's own site. */
  key: string;
  trustedOrigins: readonly string[];
  settings: GatewayChoice;
  /** Minimum delay between two polls of a job, in ms. */
  pollIntervalMs: number;
  /** Returns the protocol with its settings applied. */
  withSettings: (protocol: Protocol) => Protocol;
  /** Opens the store for results. */
  objects: () => Promise<ObjectStore>;
  /** Absolute path of the folder that holds results until they are uploaded. */
  uploadFolder: string;
  /** Checks that a file of an earlier job may be used; absent if every file may be. `label` begins its message. */
  checkFile?: ((path: string, label: string) => Promise<unknown>) | undefined;
  /** Opens a budget in the ledger. @throws MgwError('local_io') if it cannot be opened. */
  openBudget: (kind: BudgetKind, name: string) => Promise<Budget>;
}

/** The configured gateway or the embedded sandbox. */
export interface Gateway {
  baseUrl: URL;
  key: string;
  /** The gateway's name in records (`base_url`). */
  name: string;
  /** Minimum delay between two polls of a job, in ms. */
  pollIntervalMs: number;
}

/** Reads the settings of one run from the flags, the environment and the config file (design 3). */
export async function loadSettings(flags: SettingFlags, env: NodeJS.ProcessEnv): Promise<Settings> {
  return resolveSettings({ flags, env, file: await readConfig(env) });
}

/** Returns the configured gateway. @throws MgwError('config') if no base URL or no key is configured. */
export function realGateway(settings: Settings): Gateway {
  const baseUrl = requireBaseUrl(settings);
  return {
    baseUrl,
    key: requireKey(settings),
    name: nameOfGateway(baseUrl.href),
    pollIntervalMs: settings.pollIntervalMs.value,
  };
}

/** Returns a sandbox's gateway. A sandbox is local and free, so it is polled more often than a real gateway. */
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

/** Returns a label that distinguishes accounts in the ledger. The key cannot be derived from the label. */
export function accountOf(key: string): string {
  return createHmac('sha256', key).update('mgw account').digest('hex').slice(0, 16);
}

/** Returns this machine's ledger folder. The sandbox has its own folder, so its jobs never mix with paid ones. */
export function ledgerFolder(settings: Settings): string {
  return settings.sandbox.value ? join(sandboxFolder(settings), 'ledger') : settings.stateDir.value;
}

/** Returns the URL of a ledger shared by several machines; undefined if the ledger is a folder. */
export function sharedLedger({
  state: { value },
  sandbox,
  allowInsecureDatabase,
}: Settings): StateUrl | undefined {
  if (value === undefined) return undefined;
  const url = parseStateUrl(value);
  if (allowInsecureDatabase.value && url.tls.ca === undefined) url.tls.mode ??= 'disable';
  return sandbox.value ? { ...url, schema: `${url.schema}_sandbox` } : url;
}

/** Returns the folder of the sandbox's tasks, bill and ledger. */
export function sandboxFolder(settings: Settings): string {
  return join(settings.stateDir.value, 'sandbox');
}

/** The sandbox's name in records. It is constant, because the sandbox's port changes with each run. */
export const sandboxName = 'sandbox';

/** Returns a gateway's name in records: its base URL without a trailing slash. */
export function nameOfGateway(baseUrl: string): string {
  return new URL(baseUrl).href.replace(/\/$/, '');
}

/** Returns the configured gateway's name in records; undefined if none is configured. No key is needed. */
export function configuredGateway({ sandbox, baseUrl }: Settings): string | undefined {
  if (sandbox.value) return sandboxName;
  return baseUrl && nameOfGateway(baseUrl.value);
}

/** Returns the protocol with its settings applied, such as how it sends the key (specification 5.5). */
export function withSettings(protocol: Protocol, settings: Settings): Protocol {
  const { authSetting } = protocol;
  return authSetting === undefined ? protocol : { ...protocol, auth: settings[authSetting].value };
}
