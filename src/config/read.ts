import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import path from 'node:path';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { linkFault, ownerFault } from '../files/make-folder.ts';
import { isObject, parseJson, type Json, type JsonObject } from '../json.ts';
import { printableLine } from '../printable.ts';
import { hasPassword } from '../state-url.ts';
import { minSecretLength } from '../redact.ts';
import { keyInPlainFile } from './key.ts';
import type { Env } from './layers.ts';
import { configFolder, thisHost } from './places.ts';
import type { ConfigFile } from './schema.ts';

const maxBytes = 1024 * 1024;

/** Returns the config file's path. */
export function configPath(env: Env): string {
  return path.join(configFolder(env, thisHost()).path, 'config.json');
}

/**
 * Reads the config file. If the file is missing, returns a config without profiles.
 * @throws MgwError('config') if the file cannot be read, is invalid, or is accessible to
 * others (see {@link readRawConfig}).
 */
export async function readConfig(env: Env): Promise<ConfigFile> {
  const file = configPath(env);
  const raw = readRawConfig(file);
  if (raw === undefined) return { profiles: {} };
  const { checkConfig } = await import('./schema.ts');
  const checked = checkConfig(raw);
  if ('file' in checked) return checked.file;
  throw broken(file, checked.problem);
}

/**
 * Reads a config file's JSON without validating its members; undefined if there is no file. Follows symbolic links,
 * because users link their settings. The checks apply to the opened file, even if its path changes.
 * @throws MgwError('config') if the file is not a regular file, belongs to another user, is not a JSON object, contains
 * a member such as `__proto__`, is writable by others, or contains a key and is readable by others.
 */
export function readRawConfig(file: string): JsonObject | undefined {
  const found = readOwn(file);
  if (found === undefined) return undefined;
  const raw = parseConfig(file, found.bytes);
  if (process.platform !== 'win32') checkMode(file, found.stat.mode, raw);
  return raw;
}

/**
 * Reads a config file without parsing it; undefined if there is no file.
 * @throws MgwError('config') if the file is not a regular file or belongs to another user.
 */
export function configBytes(file: string): Buffer | undefined {
  return readOwn(file)?.bytes;
}

/** Returns every configured key that can be read without blocking, for redaction. Never throws. */
export function keysAtHand(env: Env): string[] {
  const keys = [env['MGW_API_KEY'], keyInPlainFile(env), ...keysOfProfiles(env)];
  return keys.filter((key) => typeof key === 'string').filter((key) => key.length >= minSecretLength);
}

function keysOfProfiles(env: Env): unknown[] {
  try {
    const profiles = readRawConfig(configPath(env))?.['profiles'];
    const each = isObject(profiles) ? Object.values(profiles) : [];
    return each.map((profile) => (isObject(profile) ? profile['api_key'] : undefined));
  } catch {
    // Any command that needs the file reports the error.
    return [];
  }
}

/**
 * Parses a config file.
 * @throws MgwError('config') if the text is not a JSON object or has a member such as `__proto__`.
 */
export function parseConfig(file: string, bytes: Uint8Array): JsonObject {
  const raw = parse(file, decode(file, bytes));
  checkMembers(file, raw);
  return raw;
}

// Synchronous, because starting the thread pool for one small file is slower.
function readOwn(file: string): { bytes: Buffer; stat: Stats } | undefined {
  let descriptor: number | undefined;
  try {
    // A FIFO must not block the command. With O_NONBLOCK, it opens immediately, and is refused below.
    descriptor = openSync(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const stat = fstatSync(descriptor);
    if (!stat.isFile())
      throw broken(file, stat.isDirectory() ? 'it is a folder' : 'it is not a regular file');
    if (stat.size > maxBytes) throw broken(file, 'it is larger than 1 MiB');
    // Checked before reading, so that no error message can quote a file that other users may have written.
    checkOwner(file, stat);
    return { bytes: readFileSync(descriptor), stat };
  } catch (error) {
    if (systemCode(error) === 'ENOENT' && !isLink(file)) return undefined;
    throw error instanceof MgwError ? error : unreadable(file, error);
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

// A dangling link is an error, because mgw could use another gateway if it ignored the settings.
function isLink(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() === true;
}

function unreadable(file: string, error: unknown): MgwError {
  const why: Record<string, string> = {
    ENOENT: 'it is a symbolic link to a file that does not exist',
    ELOOP: 'it is a symbolic link to itself',
    EACCES: 'permission denied',
    ENXIO: 'it is not a regular file',
    EISDIR: 'it is a folder',
    ENOTDIR: 'part of its path is not a folder',
  };
  const code = systemCode(error) ?? 'unknown error';
  return broken(file, why[code] ?? `it cannot be read (${code})`);
}

function decode(file: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw broken(file, 'it is not UTF-8 text');
  }
}

// The parser's message is not shown, because it quotes the text, which may contain a key.
function parse(file: string, text: string): JsonObject {
  let value: Json;
  try {
    value = parseJson(text);
  } catch (error) {
    const offset = / at position (\d+)/.exec(messageOf(error))?.[1];
    const line = text.slice(0, Number(offset ?? 0)).split('\n').length;
    const place = offset === undefined ? '' : ` (line ${line})`;
    throw broken(file, text.trim() === '' ? 'it is empty' : `it is not JSON${place}`);
  }
  if (!isObject(value)) throw broken(file, 'it is not a JSON object');
  return value;
}

const forbidden = new Set(['__proto__', 'constructor', 'prototype']);

function checkMembers(file: string, raw: JsonObject): void {
  // Not recursive, because the file's nesting could overflow the stack.
  const rest: unknown[] = [raw];
  for (let value = rest.pop(); value !== undefined; value = rest.pop()) {
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, member] of Object.entries(value)) {
      if (forbidden.has(name)) throw broken(file, `it contains a member "${name}"`);
      if (typeof member === 'object' && member !== null) rest.push(member);
    }
  }
}

// Checks the file's owner, and that neither the file nor its folder is another user's symbolic link. Any user can
// create a link in a folder that is writable by everyone.
function checkOwner(file: string, stat: Stats): void {
  const folder = path.dirname(file);
  const fault = ownerFault(stat) ?? linkFault(file);
  if (fault !== undefined) throw notOurs(`The config file ${printableLine(file, 300)} ${fault}`);
  const ofFolder = linkFault(folder);
  if (ofFolder !== undefined) throw notOurs(`The config folder ${printableLine(folder, 300)} ${ofFolder}`);
}

function notOurs(fault: string): MgwError {
  return new MgwError(
    'config',
    `${fault}. Its owner could change where the key is sent. Take ownership with chown, choose another folder ` +
      'with MGW_CONFIG_DIR, or run mgw as the owner.',
  );
}

function checkMode(file: string, mode: number, raw: JsonObject): void {
  const modeText = (mode & 0o777).toString(8).padStart(4, '0');
  if ((mode & 0o022) !== 0)
    throw open600(
      file,
      `other users can write to it (mode ${modeText}), so they could change where the key is sent`,
    );
  if ((mode & 0o077) !== 0 && holdsSecret(raw))
    throw open600(file, `it contains a key or a password, and other users can read it (mode ${modeText})`);
}

function holdsSecret(raw: JsonObject): boolean {
  const profiles = raw['profiles'];
  return (
    isObject(profiles) &&
    Object.values(profiles).some(
      (profile) => isObject(profile) && ('api_key' in profile || hasPassword(profile['state'])),
    )
  );
}

function open600(file: string, why: string): MgwError {
  const next = ['chmod', '600', file];
  return new MgwError(
    'config',
    `The config file ${printableLine(file, 300)}: ${why}. Run: chmod 600 ${printableLine(file, 300)}`,
    { next },
  );
}

function broken(file: string, why: string): MgwError {
  return new MgwError(
    'config',
    `The config file ${printableLine(file, 300)} cannot be used: ${printableLine(why, 300)}.`,
  );
}
