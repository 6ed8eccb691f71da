import { messageOf, MgwError } from '../errors.ts';
import { checkKey, keyOfFile } from './key.ts';
import type { Layers } from './layers.ts';
import type { Origin } from './source.ts';

/** Where the key is. */
export interface KeyFound extends Origin {
  /** The key, checked. @throws MgwError('config') that says what is wrong and holds no part of the key. */
  read: () => string;
}

/**
 * Finds the key without reading it: the one that a program gives, MGW_API_KEY, the file that MGW_API_KEY_FILE names, the profile. A variable
 * that is set to nothing counts: in CI it is a secret that was not passed on, and no other key may take its place.
 */
export function findKey(layers: Layers, readFile: (path: string) => string): KeyFound | undefined {
  const { flags, env, profile, profileName } = layers;
  const given = flags.apiKey;
  if (given !== undefined) return found({ source: 'flag', name: 'apiKey' }, () => given);
  const key = env['MGW_API_KEY'];
  if (key !== undefined) return found({ source: 'env', name: 'MGW_API_KEY' }, () => key);
  const path = env['MGW_API_KEY_FILE'];
  if (path !== undefined)
    return found({ source: 'env', name: 'MGW_API_KEY_FILE' }, () =>
      keyOfFile(path === '' ? '' : readFile(path)),
    );
  const kept = profile.api_key;
  if (kept !== undefined) return found({ source: 'profile', name: profileName.value }, () => kept);
  return undefined;
}

function found(origin: Origin & { name: string }, read: () => string): KeyFound {
  const where = origin.source === 'profile' ? `the profile "${origin.name}"` : origin.name;
  let key: string | undefined;
  // Once: a pipe such as <(pass show gateway) can be read no second time.
  return { ...origin, read: () => (key ??= checked(where, read)) };
}

function checked(where: string, read: () => string): string {
  try {
    return checkKey(read());
  } catch (error) {
    if (error instanceof MgwError) throw error;
    throw new MgwError('config', `The API key in ${where} cannot be used: ${messageOf(error)}.`);
  }
}
