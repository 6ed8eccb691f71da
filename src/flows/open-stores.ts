import type { Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { GatewayClient } from '../http/client.ts';
import type { Signals } from '../payment/pay-once.ts';
import type { ObjectStore } from '../store/s3-store.ts';
import type { Store, StoreDeps, StoreSettings } from '../store/store.ts';
import { version } from '../installation.ts';
import { reachOf } from '../http/reach.ts';
import type { Gateway } from './settings.ts';
import { MgwError } from '../errors.ts';

/** The parts of a session needed to open a store. */
interface Sources {
  clock: Clock;
  note(text: string): void;
  settings(): Promise<Settings>;
  gateway(): Promise<Gateway>;
  client(): Promise<GatewayClient>;
  signals(): Signals;
}

/** The location of input files in the sandbox's object storage. */
const sandboxInputs = 's3://sandbox/inputs';

/**
 * Opens the store for input files; undefined if none is configured.
 * @throws MgwError('config') if the store cannot be used.
 */
export async function openInputs(session: Sources): Promise<Store | undefined> {
  const [{ endpoint, env }, settings] = await Promise.all([serviceOf(session), session.settings()]);
  const { sandbox, storeUrl, storeCommand, storeExpiresMs } = settings;
  const location = sandbox.value
    ? { url: sandboxInputs }
    : { url: storeUrl.value, command: storeCommand.value };
  const storeSettings = { ...location, endpoint, expiresMs: storeExpiresMs.value };
  return openStore(storeSettings, env, await depsOf(session));
}

/** Returns the reason why a gateway probably cannot fetch files from a store; undefined if no reason is known. */
export function reachProblem(store: string, gateway: string): string | undefined {
  const [storeReach, gatewayReach] = [reachOf(store), reachOf(gateway)];
  if (storeReach !== 'public' && storeReach !== gatewayReach && gatewayReach !== 'loopback')
    return `the gateway ${gateway} probably cannot reach ${store}, which is not public`;
  // Asset URLs must be reachable from mainland China (specification 8).
  return /(^|\.)googleapis\.com$/.test(store) ? `${store} cannot be reached from mainland China` : undefined;
}

/** Opens the store for results. */
export async function openObjects(session: Sources): Promise<ObjectStore> {
  const { endpoint, env } = await serviceOf(session);
  return (await import('../store/s3-store.ts')).openObjectStore(endpoint, env, await depsOf(session));
}

// With --sandbox, only the sandbox's storage is used, regardless of the configured endpoint, bucket and credentials.
async function serviceOf(session: Sources): Promise<{ endpoint: string | undefined; env: Settings['env'] }> {
  const { sandbox, storeEndpoint, env } = await session.settings();
  if (!sandbox.value) return { endpoint: storeEndpoint.value, env };
  const [{ storeAccount }, { storePath }, { baseUrl }] = await Promise.all([
    import('../sandbox/store/signature.ts'),
    import('../sandbox/store/service.ts'),
    session.gateway(),
  ]);
  return { endpoint: `${baseUrl.origin}${storePath}`, env: storeAccount };
}

// A session that serves many jobs has no deadline, and opening a store must not start one, because each transfer has
// its own timeout.
async function depsOf(session: Sources): Promise<StoreDeps> {
  const [{ retries, timeoutMs, allowHttp }, { deadline }, { key }] = await Promise.all([
    session.settings(),
    session.client(),
    session.gateway(),
  ]);
  return {
    clock: session.clock,
    deadline: { remainingMs: () => Math.min(deadline?.remainingMs() ?? Infinity, timeoutMs.value) },
    retries: retries.value,
    signal: session.signals().soft,
    note: (text) => session.note(text),
    userAgent: `mgw/${version}`,
    allowHttp: allowHttp.value,
    secrets: [key],
  };
}

/**
 * Opens the configured store; undefined if there is none.
 * @throws MgwError('config') if both kinds of store are set, or there are no credentials.
 */
export async function openStore(
  { url, endpoint, command, expiresMs }: StoreSettings,
  env: Readonly<Record<string, string | undefined>>,
  deps: StoreDeps,
): Promise<Store | undefined> {
  if (url !== undefined && command !== undefined)
    throw new MgwError('config', 'Both store and store.command are set. Remove one of them.', {
      next: ['mgw', 'config', 'unset', 'store.command'],
    });
  if (command !== undefined) return (await import('../store/store.ts')).openCommandStore(command, env, deps);
  if (url === undefined) return undefined;
  return (await import('../store/s3-store.ts')).openS3Store({ url, endpoint, expiresMs }, env, deps);
}
