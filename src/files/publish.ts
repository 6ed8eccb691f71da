import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  renameSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { dirname } from 'node:path';
import { MgwError, systemCode, type Charged } from '../errors.ts';
import { syncFolder } from './make-folder.ts';
import {
  plainFile,
  removeFile,
  intactVersion,
  isIntact,
  isSameFile,
  isSameVersion,
  type FileVersion,
  type SealedFile,
  type WholeFile,
} from './whole-file.ts';
import { printableLine } from '../printable.ts';
import { trialOf } from './claim-log.ts';
import { localError } from './local-error.ts';

/** How an output is put in its place. */
export interface PublishOptions {
  /** Replaces an existing file or link; never a folder or a device. */
  force: boolean;
  /** Whether the work so far was charged, for the error. Default 'yes'. */
  charged?: Charged;
  /** True if an earlier run had begun to put this very file there: an empty one that it left is replaced. */
  isBegun?: boolean;
  /** Asked directly before the file gets its name; what it throws keeps it from getting it. */
  assertHeld?: () => void;
}

/**
 * Gives a finished file its name, in one step and durably. It is published only as what was hashed: where another
 * program has written to it since, or put another in its place, nothing is. Without `force` nothing that stands there
 * is ever replaced, and the very file that stands there already is left; of two processes with one target one wins.
 * Repeating it after a crash between its steps completes it.
 * @throws MgwError('output_exists' or 'local_io'), exit 10; the partial file is kept.
 */
export async function publish(
  file: WholeFile & Partial<SealedFile>,
  target: string,
  options: PublishOptions,
): Promise<void> {
  const { force, charged = 'yes' } = options;
  try {
    const version = await sealedVersion(file);
    if (version === undefined && (await isIntact({ ...file, path: target }))) return;
    if (version === undefined)
      throw new Error(`${printableLine(file.path)} was changed or removed meanwhile`);
    options.assertHeld?.();
    const isPut = force ? replace(file, target, charged) : putOnce(file, target, charged, options.isBegun);
    if (await isPut) await confirm(file, target, version);
    await syncFolder(dirname(target));
    removeFile(file.path);
  } catch (error) {
    throw localError(error, target, charged);
  }
}

// A file system whose numbers change by themselves costs another look at the content.
async function sealedVersion(file: WholeFile & Partial<SealedFile>): Promise<FileVersion | undefined> {
  const { path, version } = file;
  const found = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  const isSealed = found?.isFile() === true && version !== undefined && isSameVersion(found, version);
  return isSealed ? version : intactVersion(file);
}

// Between the last look at a name and the link or the rename another file may have come under it.
async function confirm(file: WholeFile, target: string, version: FileVersion): Promise<void> {
  const found = lstatSync(target, { bigint: true });
  if (isSameFile(found, version) || (await intactVersion({ ...file, path: target }))) return;
  unlinkSync(target);
  throw new Error('another program has put another file in the place of its part');
}

function replace({ path }: WholeFile, target: string, charged: Charged): boolean {
  const standing = statusOf(target);
  if (standing !== undefined && !isReplaceable(standing)) throw exists(target, standing, charged);
  // Two links to one file: a rename would do nothing, by its definition.
  if (standing !== undefined && isLinkTo(path, standing)) return false;
  renameSync(path, target);
  return true;
}

// False if the file exists already.
async function putOnce(file: WholeFile, target: string, charged: Charged, isBegun = false): Promise<boolean> {
  try {
    linkSync(file.path, target);
    return true;
  } catch (error) {
    const code = systemCode(error) ?? '';
    if (code !== 'EEXIST' && !noLinks.has(code)) throw error;
    if (code !== 'EEXIST' && reserve(target)) return renameOver(file.path, target);
  }
  const standing = statusOf(target);
  if (
    standing !== undefined &&
    (isLinkTo(file.path, standing) || (await isIntact({ ...file, path: target })))
  )
    return false;
  if (isBegun && isEmpty(standing)) return renameOver(file.path, target, false);
  throw exists(target, standing, charged);
}

// Some file systems know no links: an empty file claims the name, and the rename replaces nothing else.
function reserve(target: string): boolean {
  try {
    closeSync(openSync(target, 'wx'));
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw error;
  }
}

function renameOver(path: string, target: string, isReserved = true): boolean {
  try {
    renameSync(path, target);
    return true;
  } catch (error) {
    if (isReserved) unlinkSync(target);
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

function isLinkTo(path: string, standing: Stats): boolean {
  const named = statusOf(path);
  return named?.isFile() === true && named.ino === standing.ino && named.dev === standing.dev;
}

/**
 * Makes sure, before anything is paid, that a file can be put at `target`: nothing stands there (a file or a
 * link may, with `force`), and the folder takes a new file with a name as long as is needed.
 * @throws MgwError('output_exists' or 'local_io'), exit 10, charged 'no'.
 */
export function checkOutput(target: string, options: PublishOptions): void {
  try {
    checkFree(target, { ...options, charged: 'no' });
    tryFile(trialOf(target));
  } catch (error) {
    throw localError(error, target, 'no');
  }
}

/**
 * Makes sure that nothing stands at `target`, or with `force` only what can be replaced: a file or a link. With
 * `isBegun` (see {@link PublishOptions}) an empty file may stand there too.
 * @throws MgwError('output_exists' or 'local_io'), exit 10.
 */
export function checkFree(
  target: string,
  { force, charged, isBegun = false }: PublishOptions & { charged: Charged },
): void {
  const standing = standingAt(target, charged);
  if (standing === undefined || (force && isReplaceable(standing)) || (isBegun && isEmpty(standing))) return;
  throw exists(target, standing, charged);
}

// Permission bits do not tell about ACLs, read-only mounts and full disks: a byte that is written does.
function tryFile(path: string): void {
  const file = openSync(path, constants.O_WRONLY | constants.O_CREAT | plainFile, 0o600);
  try {
    // Another process that is here, or was killed here, has left a byte at most.
    if (fstatSync(file).size > 1) throw Object.assign(new Error(`${path} exists`), { code: 'EEXIST' });
    try {
      writeSync(file, Buffer.alloc(1));
    } finally {
      removeFile(path);
    }
  } finally {
    closeSync(file);
  }
}

function standingAt(target: string, charged: Charged): Stats | undefined {
  try {
    return statusOf(target);
  } catch (error) {
    throw localError(error, target, charged);
  }
}

function statusOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function isReplaceable(standing: Stats): boolean {
  return standing.isFile() || standing.isSymbolicLink();
}

function isEmpty(standing: Stats | undefined): boolean {
  return standing?.isFile() === true && standing.size === 0;
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
