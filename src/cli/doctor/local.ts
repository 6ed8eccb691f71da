import { randomUUID } from 'node:crypto';
import { access, constants, open, readdir, stat, unlink } from 'node:fs/promises';
import path from 'node:path';
import { configFolder, thisHost } from '../../config/places.ts';
import { configPath, readConfig } from '../../config/read.ts';
import { MgwError, systemCode, toMgwError } from '../../errors.ts';
import { makeFolder, folderFault } from '../../files/make-folder.ts';
import { regularFileFlags } from '../../files/whole-file.ts';
import { installMethod } from '../../installation.ts';
import { countUnwritten } from '../../ledger/kept-facts.ts';
import type { Io } from '../io.ts';

const [minMajor, minMinor] = [20, 18];

/** Checks that mgw supports this version of Node. */
export function checkNode(version: string = process.versions.node): Check {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const fine = major > minMajor || (major === minMajor && minor >= minMinor);
  if (fine) return ok('node', `Node ${version}, form: ${installMethod()}`);
  const error = new MgwError('config', `Node ${version} is older than ${minMajor}.${minMinor}`);
  return fail('node', error, `Install Node ${minMajor}.${minMinor} or newer.`);
}

/** Checks that the config file is readable and valid, and not readable by others. */
export function checkConfigFile({ env }: Io): Promise<Check> {
  return attempt('config', 'Correct the file, or move it away and run "mgw auth login".', async () => {
    const file = configPath(env);
    const { profiles } = await readConfig(env);
    const folder = configFolder(env, thisHost()).path;
    if (process.platform !== 'win32' && (await othersMayWrite(folder)))
      return warn('config', `other users can write to the folder ${folder}`, `Run: chmod 700 ${folder}`);
    const names = Object.keys(profiles);
    const what = names.length === 0 ? 'no profiles' : `profiles ${names.join(', ')}`;
    return ok('config', `${file}: ${what}`);
  });
}

async function othersMayWrite(folder: string): Promise<boolean> {
  const mode = await stat(folder).then(
    (found) => found.mode,
    () => 0,
  );
  return (mode & 0o022) !== 0 && (mode & 0o1000) === 0;
}

/** Checks that a file can be written durably into the ledger's folder, and that everything in it can be changed. */
export function checkStateFolder(folder: string): Promise<Check> {
  return attempt(
    'state',
    'Nothing is submitted while this fails. Take ownership of the folder (chown, chmod), or set MGW_STATE_DIR to a folder on a local disk.',
    async () => {
      let place = folder;
      try {
        await makeFolder(folder);
        await writeDurably(path.join(folder, `.doctor-${randomUUID()}`));
        for (const name of await readdir(folder)) await checkAccess((place = path.join(folder, name)));
      } catch (error) {
        const reason = systemCode(error) ?? 'unknown error';
        throw new MgwError('local_io', `${place} cannot be written (${reason})`, { cause: error });
      }
      const fault = folderFault(folder);
      if (fault !== undefined) throw new MgwError('local_io', `${folder} ${fault}`);
      if (process.platform !== 'win32' && (await othersMayWrite(folder)))
        return warn('state', `other users can write to ${folder}`, `Run: chmod 700 ${folder}`);
      return ok('state', `${folder} can be written and synced`);
    },
  );
}

/** Checks for events in the state folder that wait for the database of a shared ledger; undefined if there are none. */
export function checkUnwritten(folder: string): Check | undefined {
  const count = countUnwritten(folder);
  if (count === 0) return undefined;
  const what = count === 1 ? '1 event waits' : `${count} events are waiting`;
  const detail = `${what} in ${path.join(folder, 'unwritten')} for the database`;
  return warn(
    'unwritten',
    detail,
    'When the database is back, "mgw jobs ls" writes them. Keep the folder until then.',
  );
}

/** Checks for results in the state folder that are not uploaded yet; undefined if there are none. */
export async function checkUploads(folder: string): Promise<Check | undefined> {
  const uploads = path.join(folder, 'uploads');
  const files = await readdir(uploads).catch((): string[] => []);
  const ids = new Set(files.flatMap((file) => /^(job_[a-z\d]+)-/.exec(file)?.[1] ?? []));
  const hasSpeech = files.some((file) => file.startsWith('tts-'));
  const hints = [
    ...(ids.size > 0 ? [`"mgw jobs fetch ${[...ids].slice(0, 10).join(' ')}" uploads them at no cost.`] : []),
    ...(hasSpeech ? ['The same "mgw tts" command uploads speech.'] : []),
  ];
  if (hints.length === 0) return undefined;
  return warn('uploads', `results in ${uploads} are not uploaded yet`, hints.join(' '));
}

async function checkAccess(place: string): Promise<void> {
  try {
    await access(place, constants.R_OK | constants.W_OK);
    // The ledger refuses a link or a folder in place of its index.
    if (/^index\./.test(path.basename(place)))
      await (await open(place, constants.O_RDWR | regularFileFlags)).close();
  } catch (error) {
    // Another process may remove a file meanwhile.
    if (systemCode(error) !== 'ENOENT') throw error;
  }
}

async function writeDurably(file: string): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.write('doctor\n');
    await handle.sync();
  } finally {
    await handle.close();
    await unlink(file);
  }
}

/** The result of a check of the set-up. */
export interface Check {
  name: string;
  status: 'ok' | 'warn' | 'fail' | 'skip';
  /** The finding, on one line. */
  detail: string;
  /** How to fix the problem. */
  hint?: string;
  /** The error of a failed check; it decides the exit code. */
  error?: MgwError;
}

/** Returns a check that passed. */
export function ok(name: string, detail: string): Check {
  return { name, status: 'ok', detail };
}

/** Returns a check with a warning. */
export function warn(name: string, detail: string, hint: string): Check {
  return { name, status: 'warn', detail, hint };
}

/** Returns a check that failed. mgw cannot work until the problem is fixed. */
export function fail(name: string, error: unknown, hint: string): Check {
  const known = toMgwError(error);
  return { name, status: 'fail', detail: known.message, hint, error: known };
}

/** Returns a check that was skipped because an earlier one failed. */
export function skip(name: string, why: string): Check {
  return { name, status: 'skip', detail: why };
}

/** Runs a check. If it throws an error, the check has failed. */
export async function attempt(
  name: string,
  hint: string,
  look: () => Check | Promise<Check>,
): Promise<Check> {
  try {
    return await look();
  } catch (error) {
    return fail(name, error, hint);
  }
}
