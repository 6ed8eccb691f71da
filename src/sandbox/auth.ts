import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { listFolder, readWhole, writeWhole } from './state.ts';

/** The key that every sandbox issues, beside those it is given. */
export const DEFAULT_KEY = 'sandbox-key';

/** How a route wants its key: `bearer` and `x-api-key` as in specification 5, `none` for signed addresses. */
export type AuthScheme = 'bearer' | 'x-api-key' | 'none';

/** What stands for a key in bills and tasks, so that the key itself is written in one place only. */
export function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 32);
}

/** Records keys as issued. A key stays issued for every later sandbox over the same state directory. */
export function issueKeys(stateDir: string, keys: readonly string[]): void {
  for (const key of [DEFAULT_KEY, ...keys]) {
    const path = keyPath(stateDir, keyHash(key));
    if (readWhole(path) !== key) writeWhole(path, key);
  }
}

/**
 * The hash of the issued key that a request carries under a scheme, or undefined where the key is missing,
 * malformed or not issued (specification 5: such a request gets HTTP 401).
 */
export function authenticate(
  stateDir: string,
  scheme: AuthScheme,
  headers: IncomingHttpHeaders,
): string | undefined {
  const key = sentKey(scheme, headers);
  if (key === undefined) return undefined;
  const hash = keyHash(key);
  return readWhole(keyPath(stateDir, hash)) === key ? hash : undefined;
}

/** True where a header or the query holds an issued key, or a header is one that carries keys. */
export function carriesKey(stateDir: string, headers: IncomingHttpHeaders, query: string): boolean {
  if (KEY_HEADERS.some((name) => headers[name] !== undefined)) return true;
  const values = [...Object.values(headers).flat(), query].join('\n');
  return issuedKeys(stateDir).some((key) => values.includes(key));
}

const KEY_HEADERS = ['authorization', 'proxy-authorization', 'x-api-key', 'x-goog-api-key'];

function sentKey(scheme: AuthScheme, headers: IncomingHttpHeaders): string | undefined {
  if (scheme === 'x-api-key') return [headers['x-api-key']].flat()[0];
  return /^Bearer (\S+)$/.exec(headers.authorization ?? '')?.[1];
}

function issuedKeys(stateDir: string): string[] {
  return listFolder(join(stateDir, 'keys'))
    .filter((name) => !name.endsWith('.tmp'))
    .flatMap((name) => readWhole(keyPath(stateDir, name)) ?? []);
}

function keyPath(stateDir: string, hash: string): string {
  return join(stateDir, 'keys', hash);
}
