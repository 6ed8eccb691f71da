import { type Io, write } from './io.ts';
import { type Deadline, maxTimerMs } from '../clock.ts';
import { MgwError, usageError } from '../errors.ts';

/** The maximum size of an input that is read as a whole, in bytes: 64 MiB. */
export const maxInputBytes = 64 * 1024 * 1024;

/**
 * Yields standard input as it arrives.
 * @throws MgwError, exit 6, if standard input has not ended at the deadline. Nothing can be read from it afterwards.
 */
export async function* stdinChunks({ stdin, stderr }: Io, deadline?: Deadline): AsyncGenerator<Buffer> {
  // Report that mgw is waiting for input, so that it does not seem to hang.
  if (stdin.isTTY === true) await write(stderr, 'Reading from the terminal. Press Ctrl-D to finish.\n');
  const abandon = (): void => void stdin.destroy(lateError());
  const timer = deadline && setTimeout(abandon, Math.min(deadline.remainingMs(), maxTimerMs));
  try {
    for await (const chunk of stdin) yield Buffer.from(chunk as Uint8Array);
  } finally {
    clearTimeout(timer);
  }
}

function lateError(): MgwError {
  return new MgwError('pending', 'Standard input did not end within --timeout.', {
    exit: 'unavailable',
    retry: 'safe',
  });
}

/**
 * Reads all of standard input as text.
 * @throws MgwError('usage') if it is not valid UTF-8, or larger than 64 MiB; otherwise as {@link stdinChunks} does.
 */
export async function readStdin(io: Io, deadline?: Deadline): Promise<string> {
  return decodeUtf8(await readStdinBytes(io, '', deadline), 'Standard input');
}

/**
 * Reads all of standard input.
 * @throws MgwError('usage') whose message ends with `advice` if it is over 64 MiB; otherwise as {@link stdinChunks} does.
 */
export async function readStdinBytes(io: Io, advice = '', deadline?: Deadline): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const bytes of stdinChunks(io, deadline)) {
    chunks.push(bytes);
    size += bytes.length;
    if (size > maxInputBytes) throw usageError(`Standard input is larger than 64 MiB.${advice}`);
  }
  return Buffer.concat(chunks);
}

/** Decodes UTF-8. @throws MgwError('usage') naming `what` if the bytes are not valid UTF-8. */
export function decodeUtf8(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw usageError(`${what} is not valid UTF-8.`);
  }
}
