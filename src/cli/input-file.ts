import { open } from 'node:fs/promises';
import { constants } from 'node:fs';
import { messageOf, systemCode, usageError } from '../errors.ts';
import { decodeUtf8 } from './stdin.ts';

const mostBytes = 64 * 1024 * 1024;

/**
 * The bytes of a file that a flag names; a FIFO is not waited for.
 * @throws MgwError('usage') naming the flag where there is none, or it is no plain file, or over 64 MiB.
 */
export async function readInputFile(path: string, flag: string): Promise<Uint8Array> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
    throw usageError(`${flag}: cannot read ${path}: ${whyUnreadable(error)}.`);
  });
  try {
    const stat = await file.stat();
    if (!stat.isFile()) throw usageError(`${flag}: ${path} is not a file.`);
    if (stat.size > mostBytes) throw usageError(`${flag}: ${path} is larger than 64 MiB.`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

function whyUnreadable(error: unknown): string {
  const words: Record<string, string> = {
    ENOENT: 'there is no such file',
    EACCES: 'permission denied',
    ENOTDIR: 'a part of the path is not a folder',
    ELOOP: 'its links lead in a circle',
  };
  return words[systemCode(error) ?? ''] ?? messageOf(error);
}

/** The text of a file that a flag names. @throws MgwError('usage') like {@link readInputFile}, or for bad UTF-8. */
export async function readInputText(path: string, flag: string): Promise<string> {
  return decodeUtf8(await readInputFile(path, flag), `${flag} @${path}`);
}
