import { closeSync, fsync, lstatSync, mkdirSync, openSync, realpathSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { MgwError, systemCode } from '../errors.ts';
import { together } from '../together.ts';
import { folderFault } from '../ownership.ts';

/**
 * Makes a folder and its missing parents, durable and, where `mode` does not say otherwise, readable by their owner alone; one that is there stays as it is. Node's
 * own `recursive` never ends if the system refuses a name under a folder that exists (/proc), so the parents
 * are climbed here.
 * @throws the system's error (`EACCES`, `ENOTDIR`, `EROFS`, `ENOENT`, …).
 */
export async function makeFolder(folder: string, mode = 0o700): Promise<void> {
  try {
    await makeOne(folder, mode);
  } catch (error) {
    const parent = path.dirname(folder);
    if (systemCode(error) !== 'ENOENT' || parent === folder) throw error;
    await makeFolder(parent, mode);
    await makeOne(folder, mode);
  }
}

/**
 * {@link makeFolder} for what others must not get at. @throws besides an error that says why the folder that is there
 * is not this user's to rely on ({@link folderFault}); a link to one will do where it `mayBeLink`.
 */
export async function makeOwnFolder(folder: string, mayBeLink = false): Promise<void> {
  await makeFolder(folder);
  checkOwnFolder(folder, mayBeLink);
}

/** The same of a folder that is there. @throws as {@link makeOwnFolder} does. */
export function checkOwnFolder(folder: string, mayBeLink = false): void {
  const isLink = !mayBeLink && lstatSync(folder).isSymbolicLink();
  const fault = isLink ? 'is a link' : folderFault(folder);
  if (fault === undefined) return;
  const text = `${folder} ${fault}. Make it your own (chown, chmod 700), or choose another folder.`;
  // Not for the system's folder of temporary files, which others need.
  const isOwn = !isLink && statSync(folder).uid === process.geteuid?.();
  const canClose = isOwn && realpathSync(folder) !== realpathSync(tmpdir());
  if (!canClose) throw new Error(text);
  throw new MgwError('local_io', text, { retry: 'never', next: ['chmod', '700', folder] });
}

/**
 * Returns the real path of a folder, or of its nearest parent that exists, if that is outside `root`: a symbolic link
 * leads there. Returns undefined for a folder inside `root`. @throws the system's error.
 */
export function escapeFrom(root: string, folder: string): string | undefined {
  if (folder === root) return undefined;
  // If the root does not exist, both are its nearest parent.
  const real = existingPath(folder);
  const within = path.relative(existingPath(root), real);
  return within.split(path.sep)[0] === '..' || path.isAbsolute(within) ? real : undefined;
}

function existingPath(folder: string): string {
  for (let existing = folder; ; existing = path.dirname(existing)) {
    try {
      return realpathSync.native(existing);
    } catch (error) {
      if (systemCode(error) !== 'ENOENT' || path.dirname(existing) === existing) throw error;
    }
  }
}

async function makeOne(folder: string, mode: number): Promise<void> {
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    const there = systemCode(error) === 'EEXIST' && statSync(folder).isDirectory();
    if (!there) throw error;
  }
  // Also where it is there: who made it may have died before this.
  await syncFolder(path.dirname(folder));
}

/** True if the path is a folder, or a link to one; false if that cannot be determined. */
export function isFolder(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  } catch {
    return false;
  }
}

/** Syncs of each folder: the one under way, and the one that will be made for all who asked since. */
const syncs = new Map<string, { ask: () => Promise<void>; waiting: number }>();

/**
 * Makes the names in a folder durable: without it a crash of the machine may lose a file's name, though not its bytes.
 * One sync does for all who ask before it begins.
 */
export async function syncFolder(folder: string): Promise<void> {
  const own = syncs.get(folder) ?? { ask: together(() => syncNow(folder)), waiting: 0 };
  syncs.set(folder, own);
  own.waiting += 1;
  try {
    await own.ask();
  } finally {
    own.waiting -= 1;
    if (own.waiting === 0) syncs.delete(folder);
  }
}

/** Makes what is written to an open file durable. */
export function syncFile(file: number): Promise<void> {
  return new Promise((resolve, reject) => fsync(file, (error) => (error ? reject(error) : resolve())));
}

async function syncNow(folder: string): Promise<void> {
  try {
    const file = openSync(folder, 'r');
    await syncFile(file).finally(() => closeSync(file));
  } catch (error) {
    if (!cannotSync.has(systemCode(error) ?? '')) throw error;
  }
}

// Some file systems cannot sync a folder, and some folders may be written to and not read.
const cannotSync = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EPERM', 'EISDIR']);
