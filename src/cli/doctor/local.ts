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

/** Checks that mgw supports the Node version. */
export function checkNode(version: string = process.versions.node): Check {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const isSupported = major > minMajor || (major === minMajor && minor >= minMinor);
  if (isSupported) return ok('node', `Node ${version}, form: ${installMethod()}`);
  const error = new MgwError('config', `Node ${version} is older than ${minMajor}.${minMinor}`);
  return fail('node', error, `Install Node ${minMajor}.${minMinor} or newer.`);
}

/** Checks that the config file is readable and valid, and not readable by others. */
export async function checkConfigFile({ env }: Io): Promise<Check> {
  let file: string | undefined;
  try {
    file = configPath(env);
    const { profiles } = await readConfig(env);
    const folder = configFolder(env, thisHost()).path;
    if (process.platform !== 'win32' && (await othersMayWrite(folder)))
      return warn('config', `other users can write to the folder ${folder}`, `Run: chmod 700 ${folder}`);
    const names = Object.keys(profiles);
    const description = names.length === 0 ? 'no profiles' : `profiles ${names.join(', ')}`;
    return ok('config', `${file}: ${description}`);
  } catch (error) {
    // The error already contains the variable or the command that fixes the problem.
    const isExplained = file === undefined || toMgwError(error).next !== undefined;
    return fail(
      'config',
      error,
      isExplained
        ? 'mgw does nothing until this is fixed.'
        : 'Correct the file, or move it away and run "mgw auth login".',
    );
  }
}

async function othersMayWrite(folder: string): Promise<boolean> {
  const mode = await stat(folder).then(
    (stats) => stats.mode,
    () => 0,
  );
  return (mode & 0o022) !== 0 && (mode & 0o1000) === 0;
}

/** Checks that mgw can write a file durably to the ledger's folder, and can read and write all files in it. */
export function checkStateFolder(folder: string): Promise<Check> {
  return attempt(
    'state',
    'mgw submits nothing until this is fixed. Take ownership of the folder (chown, chmod), or set MGW_STATE_DIR to a folder on a local disk.',
    async () => {
      let checkedPath = folder;
      try {
        await makeFolder(folder);
        await writeDurably(path.join(folder, `.doctor-${randomUUID()}`));
        for (const name of await readdir(folder)) await checkAccess((checkedPath = path.join(folder, name)));
      } catch (error) {
        const reason = systemCode(error) ?? 'unknown error';
        throw new MgwError('local_io', `${checkedPath} cannot be written (${reason})`, { cause: error });
      }
      const problem = folderFault(folder);
      if (problem !== undefined) throw new MgwError('local_io', `${folder} ${problem}`);
      if (process.platform !== 'win32' && (await othersMayWrite(folder)))
        return warn('state', `other users can write to ${folder}`, `Run: chmod 700 ${folder}`);
      return ok('state', `${folder} can be written and synced`);
    },
  );
}

/**
 * Returns a warning about events in the state folder that are not yet in the shared ledger's database; undefined if
 * there are none.
 */
export function checkUnwritten(folder: string): Check | undefined {
  const count = countUnwritten(folder);
  if (count === 0) return undefined;
  const what = count === 1 ? '1 event is' : `${count} events are`;
  const detail = `${what} in ${path.join(folder, 'unwritten')}, not yet in the database`;
  return warn(
    'unwritten',
    detail,
    'Keep the folder. When the database responds again, run mgw jobs ls to write the events.',
  );
}

/** Returns a warning about results in the state folder that are not yet uploaded; undefined if there are none. */
export async function checkUploads(folder: string): Promise<Check | undefined> {
  const uploads = path.join(folder, 'uploads');
  const files = await readdir(uploads).catch((): string[] => []);
  const ids = new Set(files.flatMap((file) => /^(job_[a-z\d]+)-/.exec(file)?.[1] ?? []));
  const hasSpeech = files.some((file) => file.startsWith('tts-'));
  const hints = [
    ...(hasSpeech ? ['To upload speech, repeat its mgw tts command.'] : []),
    ...(ids.size > 0
      ? [`To upload results of jobs, free of charge: mgw jobs fetch ${[...ids].slice(0, 10).join(' ')}`]
      : []),
  ];
  if (hints.length === 0) return undefined;
  return warn('uploads', `results in ${uploads} are not uploaded yet`, hints.join(' '));
}

async function checkAccess(checkedPath: string): Promise<void> {
  try {
    await access(checkedPath, constants.R_OK | constants.W_OK);
    // The ledger refuses an index that is a link or a folder.
    if (/^index\./.test(path.basename(checkedPath)))
      await (await open(checkedPath, constants.O_RDWR | regularFileFlags)).close();
  } catch (error) {
    // Another process may have removed the file since it was listed.
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

/** The result of a setup check. */
export interface Check {
  name: string;
  status: 'ok' | 'warn' | 'fail' | 'skip';
  /** The finding, as one line of text. */
  detail: string;
  /** How to fix the problem. */
  hint?: string;
  /** The error of a failed check, which determines the exit code. */
  error?: MgwError;
}

/** Returns a passed check. */
export function ok(name: string, detail: string): Check {
  return { name, status: 'ok', detail };
}

/** Returns a check that found a problem but does not fail. */
export function warn(name: string, detail: string, hint: string): Check {
  return { name, status: 'warn', detail, hint };
}

/** Returns a failed check. mgw does not work until the problem is fixed. */
export function fail(name: string, error: unknown, hint: string): Check {
  const mgwError = toMgwError(error);
  return { name, status: 'fail', detail: mgwError.message, hint, error: mgwError };
}

/** Returns a check that was skipped because an earlier check failed. */
export function skip(name: string, reason: string): Check {
  return { name, status: 'skip', detail: reason };
}

/** Runs a check. Returns a failed check with `hint` if `check` throws. */
export async function attempt(
  name: string,
  hint: string,
  check: () => Check | Promise<Check>,
): Promise<Check> {
  try {
    return await check();
  } catch (error) {
    return fail(name, error, hint);
  }
}
