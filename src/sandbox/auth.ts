import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { allModels } from './models.ts';
import { listFolder, readWhole, writeWhole } from './state.ts';

/** The key that every sandbox issues, in addition to the keys that the user specifies. */
export const defaultKey = 'sandbox-key';

/** A request's sender: the hash of the key, and the models that the key may use. */
export interface Caller {
  key: string;
  mayUse: (model: string) => boolean;
}

/** How a request sends its key: `bearer` and `x-api-key` as in specification 5, `none` for signed URLs. */
export type AuthScheme = 'bearer' | 'x-api-key' | 'none';

/** Returns the hash that replaces a key in bills and tasks, so that the key itself is stored in only one place. */
function keyHash(key: string): string {
  return createHash('sha256').update(key).digest('hex').slice(0, 32);
}

/** Thrown for a malformed key. The message states the allowed values. */
export class KeySyntaxError extends Error {
  override readonly name = 'KeySyntaxError';
}

/**
 * Records keys as issued: `KEY` for every model, `KEY=MODEL,MODEL` for these models only. If a key is given twice, the
 * last entry takes precedence. Every later sandbox with the same state folder also accepts the keys. Throws
 * KeySyntaxError before any key is recorded.
 */
export function issueKeys(stateDir: string, keys: readonly string[]): void {
  const modelsByKey = new Map([defaultKey, ...keys].map(parseKey));
  for (const [key, models] of modelsByKey) {
    const text = [key, ...models].join('\n');
    const path = join(stateDir, 'keys', keyHash(key));
    if (readWhole(path) !== text) writeWhole(path, text);
  }
}

function parseKey(text: string): [key: string, models: string[]] {
  const separator = text.indexOf('=');
  const [key, list] = separator < 0 ? [text, ''] : [text.slice(0, separator), text.slice(separator + 1)];
  if (!/^[\x21-\x7e]+$/.test(key)) throw new KeySyntaxError('A key must be one word of ASCII characters.');
  const models = list.split(',').filter((model) => model !== '');
  const knownIds = allModels.map(({ id }) => id);
  const unknown = models.find((model) => !knownIds.includes(model));
  if (unknown !== undefined)
    throw new KeySyntaxError(`There is no model ${unknown}; available: ${knownIds.join(', ')}`);
  return [key, models];
}

/**
 * Returns a request's sender, identified by the key. Returns undefined if the key is missing, malformed or not issued.
 * The sandbox then responds with HTTP 401 (specification 5).
 */
export function authenticate(
  stateDir: string,
  scheme: AuthScheme,
  headers: IncomingHttpHeaders,
): Caller | undefined {
  if (scheme === 'none') return { key: '', mayUse: () => false };
  const key = sentKey(scheme, headers);
  if (key === undefined) return undefined;
  const hash = keyHash(key);
  const [issuedKey, ...models] = readWhole(join(stateDir, 'keys', hash))?.split('\n') ?? [];
  if (issuedKey !== key) return undefined;
  return { key: hash, mayUse: (model) => models.length === 0 || models.includes(model) };
}

/** Whether a header or the query contains an issued key, or a header meant for keys is present. */
export function carriesKey(stateDir: string, headers: IncomingHttpHeaders, query: string): boolean {
  if (keyHeaders.some((name) => headers[name] !== undefined)) return true;
  const values = [...Object.values(headers).flat(), query].join('\n');
  return issuedKeys(stateDir).some((key) => values.includes(key));
}

const keyHeaders = ['authorization', 'proxy-authorization', 'x-api-key', 'x-goog-api-key'];

function sentKey(scheme: AuthScheme, headers: IncomingHttpHeaders): string | undefined {
  if (scheme === 'x-api-key') return [headers['x-api-key']].flat()[0];
  return /^Bearer (\S+)$/.exec(headers.authorization ?? '')?.[1];
}

function issuedKeys(stateDir: string): string[] {
  return listFolder(join(stateDir, 'keys'))
    .filter((name) => !name.endsWith('.tmp'))
    .flatMap((name) => readWhole(join(stateDir, 'keys', name))?.split('\n', 1) ?? []);
}
