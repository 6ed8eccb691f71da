import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { printableLine } from '../printable.ts';

const mostBytes = 64 * 1024;

/**
 * The text of the file that MGW_API_KEY_FILE names: a plain file, or a pipe such as `<(pass show gateway)`.
 * @throws MgwError('config') that names the file where it cannot be read, is a folder, or is no key file by size.
 */
export function readKeyFile(path: string): string {
  try {
    return readBounded(path);
  } catch (error) {
    const why = { ENOENT: 'it does not exist', EACCES: 'it may not be read', EISDIR: 'it is a folder' };
    const known = why[systemCode(error) as keyof typeof why] as string | undefined;
    const file = printableLine(path, 200);
    throw new MgwError(
      'config',
      `The key file ${file} (MGW_API_KEY_FILE) cannot be used: ${known ?? messageOf(error)}.`,
    );
  }
}

function readBounded(path: string): string {
  const file = openSync(path, 'r');
  try {
    if (fstatSync(file).isDirectory()) throw new Error('it is a folder');
    const bytes = Buffer.alloc(mostBytes + 1);
    let size = 0;
    for (let read = -1; read !== 0 && size < bytes.length; size += read)
      read = readSync(file, bytes, size, bytes.length - size, null);
    if (size > mostBytes) throw new Error('it is larger than 64 KiB');
    return new TextDecoder('utf-8').decode(bytes.subarray(0, size));
  } finally {
    closeSync(file);
  }
}
