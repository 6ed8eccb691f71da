import { dirname } from 'node:path';
import { messageOf, MgwError, systemCode, type Charged } from '../errors.ts';
import { printableLine } from '../printable.ts';

const words: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  ENOENT: 'there is no such folder',
  ENOTDIR: 'a part of the path is not a folder',
  EISDIR: 'it is a folder',
  EEXIST: 'a file is in its place',
  ELOOP: 'it is a symbolic link',
  ENAMETOOLONG: 'the name is too long',
  EFBIG: 'the file system takes no file of this size',
};

// Errors that a user has to fix before the command can succeed.
const lasting = ['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP', 'ENAMETOOLONG'];

/** The error (exit 10) if a local file cannot be written or read. An MgwError is returned unchanged. */
export function localError(error: unknown, path: string, charged: Charged): MgwError {
  if (error instanceof MgwError) return error;
  const code = systemCode(error) ?? '';
  const why = words[code] ?? printableLine(messageOf(error), 300);
  const retry = lasting.includes(code) ? 'never' : 'safe';
  return new MgwError('local_io', `Cannot write ${printableLine(path)}: ${why}.`, {
    charged,
    retry: charged === 'no' ? retry : 'resume',
    ...(charged === 'no' && code === 'ENOENT' && { next: ['mkdir', '-p', dirname(path)] }),
    cause: error,
  });
}
