import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { printableLine } from '../printable.ts';
import type { Env, Layers, Origin } from './layers.ts';

/**
 * Checks that an API key can be sent unchanged (design 3), and returns the key.
 * @throws Error whose message states the problem and contains no part of the key.
 */
export function checkKey(key: string): string {
  const wrong = faultOf(key);
  if (wrong !== undefined) throw new Error(wrong);
  return key;
}

/** Returns the key in a key file's text, without the line break that editors and `echo` add. */
export function keyOfFile(text: string): string {
  return text.replace(/^\u{feff}/u, '').replace(/\r?\n$/, '');
}

function faultOf(key: string): string | undefined {
  if (key.trim() === '') return 'it is empty';
  if (/^bearer\s/i.test(key)) return 'it begins with "Bearer "; remove this prefix, because mgw adds it';
  if (/["'`\u{2018}-\u{201f}]/u.test(key)) return 'it contains quotes; remove them';
  if (/[^\x21-\x7e]/.test(key)) return `it contains ${strangeIn(key)}`;
  if (key.length > 4096) return 'it is longer than 4096 characters';
  return undefined;
}

function strangeIn(key: string): string {
  if (/[\p{Cc}\p{Cf}\p{Cs}]/u.test(key)) return 'a line break or another control character';
  return /\s/u.test(key) ? 'white space' : 'a character that is not ASCII';
}

/** Where the key was found. */
export interface KeyFound extends Origin {
  /** Reads and checks the key. @throws MgwError('config') that states the problem and contains no part of the key. */
  read: () => string;
  /**
   * Reads the key for redaction. Returns '' if the key is invalid, because an invalid key is never sent. Never throws.
   */
  readIfValid: () => string;
  /** Like `readIfValid`, but returns '' if reading could block. */
  readAtHand: () => string;
}

/**
 * Finds the source of the key without reading it. The sources are, in order, the key that a program passes,
 * MGW_API_KEY, the file at MGW_API_KEY_FILE, and the profile. An empty variable is treated as the source: in CI, an
 * empty variable is a secret that was not passed on, and no other key may replace that secret.
 */
export function findKey(layers: Layers, readFile: (path: string) => string): KeyFound | undefined {
  const { flags, env, profile, profileName } = layers;
  const flagKey = flags.apiKey;
  if (flagKey !== undefined) return found({ source: 'flag', name: 'apiKey' }, () => flagKey);
  const key = env['MGW_API_KEY'];
  if (key !== undefined) return found({ source: 'env', name: 'MGW_API_KEY' }, () => key);
  const path = env['MGW_API_KEY_FILE'];
  if (path !== undefined)
    return found(
      { source: 'env', name: 'MGW_API_KEY_FILE' },
      () => keyOfFile(path === '' ? '' : readFile(path)),
      () => isPlainFile(path),
    );
  const profileKey = profile.api_key;
  if (profileKey !== undefined)
    return found({ source: 'profile', name: profileName.value }, () => profileKey);
  return undefined;
}

function found(
  origin: Origin & { name: string },
  read: () => string,
  isAtHand: () => boolean = () => true,
): KeyFound {
  const where = origin.source === 'profile' ? `the profile "${origin.name}"` : origin.name;
  let key: string | undefined;
  // Read only once, because a pipe such as <(pass show gateway) cannot be read again.
  const readOnce = (): string => (key ??= checked(where, read));
  const readIfValid = (): string => {
    try {
      return readOnce();
    } catch {
      return '';
    }
  };
  return {
    ...origin,
    read: readOnce,
    readIfValid,
    readAtHand: () => (key !== undefined || isAtHand() ? readIfValid() : ''),
  };
}

/**
 * Returns the key in the file at MGW_API_KEY_FILE, for redaction. Returns undefined if the key is invalid, or if the
 * file is a pipe, which could block.
 */
export function keyInPlainFile({ MGW_API_KEY_FILE: path }: Env): string | undefined {
  try {
    return path && isPlainFile(path) ? checkKey(keyOfFile(readKeyFile(path))) : undefined;
  } catch {
    return undefined;
  }
}

function isPlainFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function checked(where: string, read: () => string): string {
  try {
    return checkKey(read());
  } catch (error) {
    if (error instanceof MgwError) throw error;
    throw new MgwError('config', `The API key in ${where} cannot be used: ${messageOf(error)}.`);
  }
}

const maxBytes = 64 * 1024;

/**
 * Reads the file at MGW_API_KEY_FILE: a regular file, or a pipe such as `<(pass show gateway)`.
 * @throws MgwError('config') that names the file if it cannot be read, is a folder, or is too large for a key file.
 */
export function readKeyFile(path: string): string {
  try {
    return readBounded(path);
  } catch (error) {
    const why = { ENOENT: 'it does not exist', EACCES: 'permission denied', EISDIR: 'it is a folder' };
    const reason = why[systemCode(error) as keyof typeof why] as string | undefined;
    const file = printableLine(path, 200);
    throw new MgwError(
      'config',
      `The key file ${file} (MGW_API_KEY_FILE) cannot be used: ${reason ?? messageOf(error)}.`,
    );
  }
}

function readBounded(path: string): string {
  const file = openSync(path, 'r');
  try {
    if (fstatSync(file).isDirectory()) throw new Error('it is a folder');
    const bytes = Buffer.alloc(maxBytes + 1);
    let size = 0;
    for (let read = -1; read !== 0 && size < bytes.length; size += read)
      read = readSync(file, bytes, size, bytes.length - size, null);
    if (size > maxBytes) throw new Error('it is larger than 64 KiB');
    return new TextDecoder('utf-8').decode(bytes.subarray(0, size));
  } finally {
    closeSync(file);
  }
}
