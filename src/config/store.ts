import { chmod, open, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import Conf from 'conf';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { isObject, type JsonObject } from '../json.ts';
import { makeFolder } from '../files/make-folder.ts';
import { configBytes, configPath, readRawConfig } from './read.ts';
import type { Env } from './layers.ts';
import { checkConfig, type ConfigFile, type Profile } from './schema.ts';

/**
 * Changes the config file atomically. Reads the current file, and replaces it with a new file of mode 0600. Creates a
 * missing folder with mode 0700. Never writes the key to any other file.
 * @throws MgwError('config') if the file cannot be trusted or the result would be invalid; MgwError('local_io') if the
 * file cannot be written.
 */
export async function changeConfig(env: Env, change: (file: ConfigFile) => ConfigFile): Promise<void> {
  const file = configPath(env);
  // Reports an unreadable file before creating a lock next to it.
  readRawConfig(file);
  await replace(file, () => {
    const after = change(asConfig(readRawConfig(file) ?? {}));
    const checked = checkConfig(after);
    if ('problem' in checked) throw notAConfig(file, checked.problem);
    return after;
  });
}

/**
 * Replaces the whole config file, even an invalid one, with a file of mode 0600.
 * @param before the bytes that the caller read from the file; undefined if there was no file
 * @throws MgwError('config') if another process has changed the file since it was read; MgwError('local_io') if it
 * cannot be written.
 */
export async function replaceConfig(
  file: string,
  before: Buffer | undefined,
  after: ConfigFile,
): Promise<void> {
  await replace(file, () => {
    const now = configBytes(file);
    const isSame = before === undefined ? now === undefined : now?.equals(before);
    if (!isSame)
      throw new MgwError(
        'config',
        `Another process has changed the config file ${file}. The file was not replaced.`,
      );
    return after;
  });
}

// Holds the lock from the read until after the write.
async function replace(file: string, content: () => ConfigFile): Promise<void> {
  const refuse = (error: unknown): never => {
    throw unwritable(file, error);
  };
  const unlock = await locked(file).catch(refuse);
  try {
    await write(file, content()).catch(refuse);
  } finally {
    await unlock();
  }
}

// The age after which a lock is treated as left by a dead process, in ms. A change takes far less time.
const maxChangeMs = 10_000;

// Without a lock, two concurrent changes would each replace the whole file, and one change would be lost.
async function locked(file: string): Promise<() => Promise<void>> {
  await makeFolder(path.dirname(file));
  const lock = `${file}.lock`;
  for (let tries = 0; ; tries += 1) {
    try {
      await (await open(lock, 'wx', 0o600)).close();
      return () => rm(lock, { force: true });
    } catch (error) {
      if (systemCode(error) !== 'EEXIST') throw error;
      const age = await stat(lock).then(
        ({ mtimeMs }) => Math.abs(Date.now() - mtimeMs),
        () => 0,
      );
      if (age > maxChangeMs) await rm(lock, { force: true });
      else if (tries * 50 > 2 * maxChangeMs)
        throw new Error(`another process holds the lock ${lock}`, { cause: error });
      else await delay(50);
    }
  }
}

/** Changes one profile as {@link changeConfig} changes the file. Creates the profile if it does not exist. */
export function changeProfile(env: Env, name: string, change: (profile: Profile) => Profile): Promise<void> {
  return changeConfig(env, (file) => {
    const profile = Object.hasOwn(file.profiles, name) ? file.profiles[name] : undefined;
    return { ...file, profiles: { ...file.profiles, [name]: change(profile ?? {}) } };
  });
}

// Does not validate the file, because the change may fix it. The result is validated after the change.
function asConfig(raw: JsonObject): ConfigFile {
  const profiles = isObject(raw['profiles']) ? raw['profiles'] : {};
  return { ...raw, profiles } as ConfigFile;
}

async function write(file: string, content: ConfigFile): Promise<void> {
  const conf = new Conf<ConfigFile>({
    cwd: path.dirname(file),
    configName: path.basename(file, '.json'),
    configFileMode: 0o600,
    // Replaces the file even if it is not JSON.
    clearInvalidConfig: true,
    accessPropertiesByDotNotation: false,
    serialize: (value) => `${JSON.stringify(value, undefined, 2)}\n`,
  });
  conf.store = content;
  // If conf cannot replace a file, it writes to the existing file, which keeps its old mode.
  await chmod(file, 0o600);
}

function unwritable(file: string, error: unknown): MgwError {
  const reason = systemCode(error) ?? messageOf(error);
  return new MgwError('local_io', `The config file ${file} cannot be written: ${reason}.`, { cause: error });
}

function notAConfig(file: string, problem: string): MgwError {
  return new MgwError('config', `The config file ${file} would be invalid: ${problem}.`);
}
