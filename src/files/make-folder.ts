import {
  closeSync,
  fsync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  realpathSync,
  statSync,
  type Stats,
} from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { localError, MgwError, systemCode, type Charged } from '../errors.ts';

/**
 * Durably creates a folder and its missing parents, with mode 0700 by default. An existing folder is not changed. Does
 * not use Node's `recursive` option, which hangs if the system refuses a name under an existing folder (/proc).
 * @throws the system's error (`EACCES`, `ENOTDIR`, `EROFS`, `ENOENT`, …)
 */
export async function makeFolder(folder: string, mode = 0o700): Promise<void> {
  try {
    await createFolder(folder, mode);
  } catch (error) {
    const parent = path.dirname(folder);
    if (systemCode(error) !== 'ENOENT' || parent === folder) throw error;
    await makeFolder(parent, mode);
    await createFolder(folder, mode);
  }
}

/**
 * Like {@link makeFolder}, for files that other users must not access. A link to a folder is accepted if `mayBeLink` is
 * true.
 * @throws the same errors, or an error that explains why an existing folder is not safe ({@link folderFault})
 */
export async function makeOwnFolder(folder: string, mayBeLink = false): Promise<void> {
  await makeFolder(folder);
  checkOwnFolder(folder, mayBeLink);
}

/**
 * Creates a folder in the system's temporary folder. Only its owner can read it. Returns its path, which is absolute
 * because a script in the folder may change its current folder.
 * @throws MgwError('local_io'), exit 10; its `next` creates the temporary folder if it does not exist.
 */
export function makeTempFolder(prefix: string, charged: Charged = 'no'): string {
  const start = path.resolve(tmpdir(), prefix);
  try {
    return mkdtempSync(start);
  } catch (error) {
    const failure = localError(error, start, 'no');
    throw charged === 'no' ? failure : failure.with({ charged, retry: 'resume' });
  }
}

/** Removes a folder if it is empty. Does not remove a link to a folder. @throws file system errors. */
export async function removeIfEmpty(folder: string): Promise<void> {
  await rmdir(folder).catch((error: unknown) => {
    if (!['ENOTEMPTY', 'EEXIST', 'ENOENT', 'ENOTDIR'].includes(systemCode(error) ?? '')) throw error;
  });
}

/** Checks that other users cannot access an existing folder. @throws the errors of {@link makeOwnFolder} */
export function checkOwnFolder(folder: string, mayBeLink = false): void {
  const isLink = !mayBeLink && lstatSync(folder).isSymbolicLink();
  const fault = isLink ? 'is a link' : folderFault(folder);
  if (fault === undefined) return;
  const text = `${folder} ${fault}. Make it your own (chown, chmod 700), or choose another folder.`;
  // Does not suggest chmod for the system's temporary folder, because other users need it.
  const isOwned = !isLink && statSync(folder).uid === process.geteuid?.();
  const canRestrict = isOwned && realpathSync(folder) !== realpathSync(tmpdir());
  if (!canRestrict) throw new Error(text);
  throw new MgwError('local_io', text, { retry: 'never', next: ['chmod', '700', folder] });
}

/**
 * Returns the real path of a folder, or of its nearest existing parent, if a symbolic link places it outside `root`.
 * Returns undefined if it is inside `root`. @throws the system's error.
 */
export function escapeFrom(root: string, folder: string): string | undefined {
  if (folder === root) return undefined;
  // If the root does not exist, both paths resolve to its nearest existing parent.
  const real = existingPath(folder);
  const relativePath = path.relative(existingPath(root), real);
  return relativePath.split(path.sep)[0] === '..' || path.isAbsolute(relativePath) ? real : undefined;
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

/** Returns a path, with the symbolic links in its existing part resolved. */
export function realPathOf(place: string): string {
  try {
    return realpathSync.native(place);
  } catch {
    const parent = path.dirname(place);
    return parent === place ? place : path.join(realPathOf(parent), path.basename(place));
  }
}

async function createFolder(folder: string, mode: number): Promise<void> {
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    const exists = systemCode(error) === 'EEXIST' && statSync(folder).isDirectory();
    if (!exists) throw error;
  }
  // Sync even if the folder already existed: the process that created it may have died before its sync.
  await syncFolder(path.dirname(folder));
}

/** Whether a path leads to a folder, directly or through a link; false if that cannot be determined. */
export function isFolder(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  } catch {
    return false;
  }
}

/**
 * Returns a function whose callers share runs of an action. All calls during one run share the next run, so that each
 * caller gets a run that began after its call.
 */
export function coalesce<T>(action: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | undefined;
  return () => {
    if (next !== undefined) return next;
    next = last
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return action();
      });
    last = next;
    return next;
  };
}

/** The pending syncs by folder. `sync` joins the next sync. */
const syncs = new Map<string, { sync: () => Promise<void>; waiting: number }>();

/**
 * Makes the file names in a folder durable. Without this, a system crash may lose a file's name even if its bytes are
 * on disk. One sync covers all calls that are made before it begins.
 */
export async function syncFolder(folder: string): Promise<void> {
  const entry = syncs.get(folder) ?? { sync: coalesce(() => syncNow(folder)), waiting: 0 };
  syncs.set(folder, entry);
  entry.waiting += 1;
  try {
    await entry.sync();
  } finally {
    entry.waiting -= 1;
    if (entry.waiting === 0) syncs.delete(folder);
  }
}

/** Makes an open file's written bytes durable. */
export function syncFile(file: number): Promise<void> {
  return new Promise((resolve, reject) => fsync(file, (error) => (error ? reject(error) : resolve())));
}

async function syncNow(folder: string): Promise<void> {
  try {
    const file = openSync(folder, 'r');
    await syncFile(file).finally(() => closeSync(file));
  } catch (error) {
    if (!unsyncableCodes.has(systemCode(error) ?? '')) throw error;
  }
}

// The error codes to ignore: some file systems cannot sync a folder, and some folders can be written to but not read.
const unsyncableCodes = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EPERM', 'EISDIR']);

/** The user id of this process; undefined if the system has none. */
type User = number | undefined;

const thisUser = (): User => process.geteuid?.();

/**
 * Returns the reason why this user cannot trust a file or folder, phrased to follow "it"; undefined if it is safe.
 * Root's files are trusted. Other users' files are not trusted, even by root, because they could redirect the key.
 */
export function ownerFault({ uid }: Pick<Stats, 'uid'>, user: User = thisUser()): string | undefined {
  if (user === undefined || uid === user || uid === 0) return undefined;
  return `belongs to user ${uid}, and mgw runs as user ${user}`;
}

/**
 * Returns the {@link ownerFault} of a link, phrased to follow "it"; undefined if there is no fault or no
 * link at the path.
 */
export function linkFault(path: string, user: User = thisUser()): string | undefined {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  const fault = stat?.isSymbolicLink() && ownerFault(stat, user);
  return fault ? `is a link that ${fault}` : undefined;
}

/**
 * Returns the reason why this user cannot store records in an existing folder, phrased to follow "it": another user
 * owns the folder or a link in its place, or every user may write to it. Returns undefined if the folder is safe.
 * @throws the system's error if the folder cannot be examined
 */
export function folderFault(path: string, user: User = thisUser()): string | undefined {
  const stat = statSync(path);
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, '0');
  const isWorldWritable = user !== undefined && (stat.mode & 0o002) !== 0;
  return (
    linkFault(path, user) ??
    ownerFault(stat, user) ??
    (isWorldWritable ? `can be written by every user (mode ${mode})` : undefined)
  );
}
