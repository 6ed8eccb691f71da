import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readlinkSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
  type Stats,
} from 'node:fs';
import { dirname } from 'node:path';
import { isLinkUnsupported, MgwError, systemCode, type Charged, localError } from '../errors.ts';
import { syncFolder } from './make-folder.ts';
import {
  regularFileFlags,
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
import { testFileOf } from './claim-log.ts';

/** Options of {@link publish}. */
export interface PublishOptions {
  /** Whether to replace an existing file or link. Folders and devices are never replaced. */
  force: boolean;
  /** Whether the work so far was charged, for use in errors. Default: 'yes'. */
  charged?: Charged;
  /** Whether an earlier run had started to publish this file. If so, the empty file that the run left is replaced. */
  isBegun?: boolean;
  /** Called immediately before the file is published. If it throws, the file is not published. */
  assertLease?: () => void;
}

/**
 * Atomically and durably gives a finished file its name. Publishes the file only if it still has the content that was
 * hashed, and no other program has written to or replaced it. Without `force`, an existing file is never replaced, and
 * only one of two processes that publish to the same target succeeds. If `target` is already this file, it is left in
 * place. After a crash, a repeated call completes the operation.
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
      throw new Error(`${printableLine(file.path)} was changed or removed in the meantime`);
    options.assertLease?.();
    const isPublished = force
      ? replace(file, target, charged)
      : publishOnce(file, target, charged, options.isBegun);
    if (await isPublished) await confirm(file, target, version);
    await syncFolder(dirname(target));
    removeFile(file.path);
  } catch (error) {
    throw localError(error, target, charged);
  }
}

// Returns the file's version if it still has the sealed content. On file systems whose inode numbers change, compares
// the content again.
async function sealedVersion(file: WholeFile & Partial<SealedFile>): Promise<FileVersion | undefined> {
  const { path, version } = file;
  const status = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  const isSealed = status?.isFile() === true && version !== undefined && isSameVersion(status, version);
  return isSealed ? version : intactVersion(file);
}

// Removes the published file and throws if another program replaced the partial file between the last check and the
// link or rename.
async function confirm(file: WholeFile, target: string, version: FileVersion): Promise<void> {
  const status = lstatSync(target, { bigint: true });
  if (isSameFile(status, version) || (await intactVersion({ ...file, path: target }))) return;
  unlinkSync(target);
  throw new Error('another program replaced the partial file');
}

function replace({ path }: WholeFile, target: string, charged: Charged): boolean {
  const existing = statusOf(target);
  if (existing !== undefined && !isReplaceable(target, existing))
    throw existsError(target, existing, charged);
  // According to POSIX, a rename between two links to the same file does nothing.
  if (existing !== undefined && isLinkTo(path, existing)) return false;
  renameSync(path, target);
  return true;
}

// Publishes without replacing another file. Returns false if `target` is already this file.
async function publishOnce(
  file: WholeFile,
  target: string,
  charged: Charged,
  isBegun = false,
): Promise<boolean> {
  try {
    linkSync(file.path, target);
    return true;
  } catch (error) {
    const nameExists = systemCode(error) === 'EEXIST';
    if (!nameExists && !isLinkUnsupported(error)) throw error;
    if (!nameExists && reserveName(target)) return renameOver(file.path, target);
  }
  const existing = statusOf(target);
  if (
    existing !== undefined &&
    (isLinkTo(file.path, existing) || (await isIntact({ ...file, path: target })))
  )
    return false;
  if (isBegun && isEmpty(existing)) return renameOver(file.path, target, false);
  throw existsError(target, existing, charged);
}

// For file systems without hard links: an empty file claims the name, and the rename replaces only that file.
function reserveName(target: string): boolean {
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

function isLinkTo(path: string, existing: Stats): boolean {
  const status = statusOf(path);
  return status?.isFile() === true && status.ino === existing.ino && status.dev === existing.dev;
}

/**
 * Checks, before any payment, that a file can be created at `target`. The path must be free (with `force`, it may be a
 * file or a link). The folder must accept a new file with a name of the required length.
 * @throws MgwError('output_exists' or 'local_io'), exit 10, charged 'no'.
 */
export function checkOutput(target: string, options: PublishOptions): void {
  try {
    checkFree(target, { ...options, charged: 'no' });
    createTestFile(testFileOf(target));
  } catch (error) {
    throw localError(error, target, 'no');
  }
}

/**
 * Checks that `target` is free. With `force`, it may be a file or a link. With `isBegun` (see {@link PublishOptions}),
 * it may also be an empty file.
 * @throws MgwError('output_exists' or 'local_io'), exit 10.
 */
export function checkFree(
  target: string,
  { force, charged, isBegun = false }: PublishOptions & { charged: Charged },
): void {
  const existing = statusAt(target, charged);
  if (existing === undefined || (force && isReplaceable(target, existing)) || (isBegun && isEmpty(existing)))
    return;
  throw existsError(target, existing, charged);
}

// Permission bits do not show ACLs, read-only mounts or full disks, so one byte is written as a test.
function createTestFile(path: string): void {
  const file = openSync(path, constants.O_WRONLY | constants.O_CREAT | regularFileFlags, 0o600);
  try {
    // A file of at most one byte is another process's test file. That process may have been killed.
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

function statusAt(target: string, charged: Charged): Stats | undefined {
  try {
    return statusOf(target);
  } catch (error) {
    throw localError(error, target, charged);
  }
}

function statusOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function isReplaceable(path: string, existing: Stats): boolean {
  return existing.isFile() || (existing.isSymbolicLink() && !isLinkToDevice(path));
}

// Whether a link leads to a device, a pipe or a folder, or to a file descriptor. On Linux, /dev/stdout is a link to
// /proc/self/fd/1; on macOS, to fd/1.
function isLinkToDevice(path: string): boolean {
  try {
    return /^(\/proc|fd)\//.test(readlinkSync(path)) || !statSync(path).isFile();
  } catch {
    return false;
  }
}

function isEmpty(existing: Stats | undefined): boolean {
  return existing?.isFile() === true && existing.size === 0;
}

function existsError(target: string, existing: Stats | undefined, charged: Charged): MgwError {
  const displayPath = printableLine(target);
  return new MgwError('output_exists', `${displayPath} ${describeExisting(target, existing)}`, {
    charged,
    retry: charged === 'no' ? 'safe' : 'resume',
  });
}

function describeExisting(path: string, existing: Stats | undefined): string {
  if (existing?.isDirectory()) return 'is a folder: use a file in it.';
  if (existing !== undefined && !isReplaceable(path, existing))
    return 'is not a regular file: use another file, or -o - for standard output.';
  if (existing?.isSymbolicLink())
    return 'is a symbolic link: use another file, or replace the link with --force.';
  return 'exists: use another file, or replace it with --force.';
}
