import { randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { link, lstat, open, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { MgwError, systemCode, type Charged } from '../errors.ts';
import { printableLine } from '../printable.ts';
import { localError } from './local-error.ts';

/** How an output is put in its place. */
export interface PublishOptions {
  /** Replaces a file or a link that stands there; a folder or a device never. */
  force: boolean;
  /** Whether what led here has cost money, for the error; 'yes' where absent. */
  charged?: Charged;
}

/** The notes that a download keeps beside its `.part` file. */
export function sidecarOf(part: string): string {
  return `${part}.json`;
}

/**
 * Gives a finished `.part` file its name, in one step and durably, and removes the notes beside it. Without
 * `force` nothing that stands there is ever replaced; of two processes with one target one wins. Repeating it
 * after a crash between its steps completes it.
 * @throws MgwError('output_exists' or 'local_io'), exit 10; the `.part` file is kept.
 */
export async function publish(part: string, target: string, options: PublishOptions): Promise<void> {
  const { force, charged = 'yes' } = options;
  try {
    if (force) await replace(part, target, charged);
    else await linkOnce(part, target, charged);
    await syncFolder(dirname(target));
    await rm(part, { force: true });
    await rm(sidecarOf(part), { force: true });
  } catch (error) {
    throw localError(error, target, charged);
  }
}

async function replace(part: string, target: string, charged: Charged): Promise<void> {
  const standing = await statusOf(target);
  if (standing !== undefined && !isReplaceable(standing)) throw exists(target, standing, charged);
  // Two links to one file: a rename would do nothing, by its definition.
  if (await isSameFile(part, target)) return;
  await rename(part, target);
}

async function linkOnce(part: string, target: string, charged: Charged): Promise<void> {
  try {
    await link(part, target);
  } catch (error) {
    const code = systemCode(error) ?? '';
    if (code !== 'EEXIST') return renameOnce(part, target, charged, error);
    if (!(await isSameFile(part, target))) throw exists(target, await statusOf(target), charged);
  }
}

// Some file systems know no links: an empty file claims the name, and the rename replaces nothing else.
async function renameOnce(part: string, target: string, charged: Charged, why: unknown): Promise<void> {
  if (!noLinks.has(systemCode(why) ?? '')) throw why;
  try {
    await (await open(target, 'wx')).close();
  } catch (error) {
    throw systemCode(error) === 'EEXIST' ? exists(target, await statusOf(target), charged) : error;
  }
  try {
    await rename(part, target);
  } catch (error) {
    await unlink(target);
    throw error;
  }
}

const noLinks = new Set([
  'EPERM',
  'EACCES',
  'ENOTSUP',
  'EOPNOTSUPP',
  'ENOSYS',
  'EMLINK',
  'EINVAL',
  'UNKNOWN',
]);

async function isSameFile(one: string, other: string): Promise<boolean> {
  const [a, b] = [await statusOf(one), await statusOf(other)];
  return a !== undefined && b !== undefined && a.isFile() && a.ino === b.ino && a.dev === b.dev;
}

/**
 * Makes sure, before anything is paid, that a file can be put at `target`: nothing stands there (a file or a
 * link may, with `force`), and the folder takes a new file with a name as long as is needed.
 * @throws MgwError('output_exists' or 'local_io'), exit 10, charged 'no'.
 */
export async function checkOutput(target: string, { force }: { force: boolean }): Promise<void> {
  try {
    await checkFree(target, { force, charged: 'no' });
    if (!(await stat(dirname(target))).isDirectory()) throw Object.assign(new Error(), { code: 'ENOTDIR' });
    await tryFile(`${sidecarOf(`${target}.part`)}.${randomBytes(4).toString('hex')}`);
  } catch (error) {
    throw localError(error, target, 'no');
  }
}

/**
 * Makes sure that nothing stands at `target`, or with `force` only what can be replaced: a file or a link.
 * @throws MgwError('output_exists' or 'local_io'), exit 10.
 */
export async function checkFree(
  target: string,
  { force, charged }: { force: boolean; charged: Charged },
): Promise<void> {
  const standing = await statusOf(target).catch((error: unknown) => {
    throw localError(error, target, charged);
  });
  if (standing !== undefined && !(force && isReplaceable(standing))) throw exists(target, standing, charged);
}

// Permission bits do not tell about ACLs, read-only mounts and full disks: a byte that is written does.
async function tryFile(path: string): Promise<void> {
  const { O_WRONLY, O_CREAT, O_EXCL } = constants;
  const file = await open(path, O_WRONLY | O_CREAT | O_EXCL, 0o600);
  try {
    await file.write(Buffer.alloc(1));
  } finally {
    await file.close();
    await unlink(path);
  }
}

async function statusOf(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function isReplaceable(standing: Stats): boolean {
  return standing.isFile() || standing.isSymbolicLink();
}

function exists(target: string, standing: Stats | undefined, charged: Charged): MgwError {
  const shown = printableLine(target);
  return new MgwError('output_exists', `${shown} ${whatStands(standing)}`, {
    charged,
    retry: charged === 'no' ? 'safe' : 'resume',
  });
}

function whatStands(standing: Stats | undefined): string {
  if (standing?.isDirectory()) return 'is a folder: name a file in it.';
  if (standing?.isSymbolicLink())
    return 'is a symbolic link: name another file, or replace the link with --force.';
  if (standing === undefined || standing.isFile())
    return 'exists: name another file, or replace it with --force.';
  return 'is not a plain file: name another one, or -o - for standard output.';
}

// Without it a crash of the machine may lose the name, though not the bytes.
async function syncFolder(path: string): Promise<void> {
  try {
    const folder = await open(path, 'r');
    await folder.sync().finally(() => folder.close());
  } catch (error) {
    if (!cannotSync.has(systemCode(error) ?? '')) throw error;
  }
}

// Some file systems cannot sync a folder, and some folders may be written to and not read.
const cannotSync = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP', 'EACCES', 'EPERM', 'EISDIR']);
