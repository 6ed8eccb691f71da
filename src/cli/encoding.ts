import { isUtf8 } from 'node:buffer';
import { readFileSync, readlinkSync } from 'node:fs';
import { usageError } from '../errors.ts';

/**
 * Refuses an argument or a current folder that is not valid UTF-8. Node replaces invalid bytes with U+FFFD, so mgw
 * would pay for a different text or write different files. Without /proc, accepts it, because the U+FFFD may be real.
 * @throws MgwError('usage').
 */
export function requireUtf8(argv: readonly string[]): void {
  if (argv.some((word) => word.includes('\ufffd'))) {
    const position = invalidArgument(
      argv,
      readBytes(() => readFileSync('/proc/self/cmdline')),
    );
    if (position !== undefined) throw usageError(`Argument ${position} is not valid UTF-8.`);
  }
  if (!isUtf8(readBytes(() => readlinkSync('/proc/self/cwd', 'buffer'))))
    throw usageError("The current folder's name is not valid UTF-8.");
}

/**
 * Returns the number of the first argument that is not valid UTF-8, starting at 1; undefined if there is none.
 * @param commandLine the process's command line, which ends with the arguments, with a NUL byte after each
 */
export function invalidArgument(argv: readonly string[], commandLine: Buffer): number | undefined {
  // Latin-1 preserves every byte.
  const words = commandLine.toString('latin1').split('\0').slice(0, -1).slice(-argv.length);
  const index = words.findIndex((word) => !isUtf8(Buffer.from(word, 'latin1')));
  return index < 0 ? undefined : index + 1;
}

function readBytes(read: () => Buffer): Buffer {
  try {
    return read();
  } catch {
    return Buffer.alloc(0);
  }
}
