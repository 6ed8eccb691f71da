import { MgwError } from '../errors.ts';
import type { Store, StoreDeps, StoreSettings } from './store.ts';

/**
 * Opens the configured store; undefined if there is none.
 * @throws MgwError('config') if both kinds are set, or there are no credentials.
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
  if (command !== undefined) return (await import('./command-store.ts')).openCommandStore(command, env, deps);
  if (url === undefined) return undefined;
  return (await import('./s3-store.ts')).openS3Store({ url, endpoint, expiresMs }, env, deps);
}
