import { lstat, mkdir, open, stat } from 'node:fs/promises';
import path from 'node:path';
import { systemCode } from './errors.ts';

/**
 * Makes a folder and its missing parents, readable by their owner alone and durable; one that is there stays as it is. Node's
 * own `recursive` never ends where the system refuses a name under a folder that exists (/proc), so the parents
 * are climbed here.
 * @throws the system's error (`EACCES`, `ENOTDIR`, `EROFS`, `ENOENT`, …).
 */
export async function makeFolder(folder: string): Promise<void> {
  try {
    await makeOne(folder);
  } catch (error) {
    const parent = path.dirname(folder);
    if (systemCode(error) !== 'ENOENT' || parent === folder) throw error;
    await makeFolder(parent);
    await makeOne(folder);
  }
}

/**
 * {@link makeFolder} for what others must not get at: the folder itself must be this user's, and no link.
 * @throws besides an error `EEXIST` where something else has the name.
 */
export async function makeOwnFolder(folder: string): Promise<void> {
  await makeFolder(folder);
  const status = await lstat(folder);
  const isOwn = process.getuid === undefined || status.uid === process.getuid();
  if (status.isDirectory() && isOwn) return;
  throw Object.assign(new Error("it is a link, or another user's folder"), { code: 'EEXIST' });
}

async function makeOne(folder: string): Promise<void> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    const there = systemCode(error) === 'EEXIST' && (await stat(folder)).isDirectory();
    if (!there) throw error;
  }
  // Also where it is there: who made it may have died before this.
  await syncFolder(path.dirname(folder));
}

/** Makes the names in a folder durable: without it a crash of the machine may lose a file's name, though not its bytes. */
export async function syncFolder(folder: string): Promise<void> {
  try {
    const file = await open(folder, 'r');
    await file.sync().finally(() => file.close());
  } catch (error) {
    if (!cannotSync.has(systemCode(error) ?? '')) throw error;
  }
}

// Some file systems cannot sync a folder, and some folders may be written to and not read.
const cannotSync = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EPERM', 'EISDIR']);
