import { isUtf8 } from 'node:buffer';
import { readFileSync, readlinkSync } from 'node:fs';
import { usageError } from '../errors.ts';

/**
 * Refuses arguments and a current folder that are not UTF-8. Node replaces their invalid bytes by U+FFFD, so that mgw
 * would pay for another text and write other files. Without /proc, accepts them, because they may contain a real U+FFFD.
 * @throws MgwError('usage').
 */
export function requireUtf8(argv: readonly string[]): void {
  if (argv.some(hasReplacementCharacter)) {
    const damaged = invalidArgument(
      argv,
      readBytes(() => readFileSync('/proc/self/cmdline')),
    );
    if (damaged !== undefined) throw usageError(`Argument ${damaged} is not valid UTF-8.`);
  }
  if (
    hasReplacementCharacter(currentFolder()) &&
    !isUtf8(readBytes(() => readlinkSync('/proc/self/cwd', 'buffer')))
  )
    throw usageError("The current folder's name is not valid UTF-8.");
}

/**
 * Returns the number of the first argument that is not valid UTF-8, starting at 1; undefined if there is none.
 * @param commandLine the process's command line, which ends with the arguments, with a NUL byte after each
 */
export function invalidArgument(argv: readonly string[], commandLine: Buffer): number | undefined {
  // Latin-1 keeps each byte.
  const words = commandLine.toString('latin1').split('\0').slice(0, -1).slice(-argv.length);
  const index = words.findIndex((word) => !isUtf8(Buffer.from(word, 'latin1')));
  return index < 0 ? undefined : index + 1;
}

function hasReplacementCharacter(text: string): boolean {
  return text.includes('\ufffd');
}

function currentFolder(): string {
  try {
    return process.cwd();
  } catch {
    // The folder was removed. Only some commands need it.
    return '';
  }
}

function readBytes(read: () => Buffer): Buffer {
  try {
    return read();
  } catch {
    return Buffer.alloc(0);
  }
}
