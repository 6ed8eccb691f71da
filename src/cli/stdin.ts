import { usageError } from '../errors.ts';
import { write, type Io } from './io.ts';

const mostBytes = 64 * 1024 * 1024;

/**
 * All of standard input as text.
 * @throws MgwError('usage') where it is not valid UTF-8, or larger than 64 MiB.
 */
export async function readStdin(io: Io): Promise<string> {
  // Nothing moves on a terminal until something is typed: it must not look as if mgw hung.
  if (io.stdin.isTTY === true) await write(io.stderr, 'Reading from the terminal; Ctrl-D ends it.\n');
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of io.stdin) {
    const bytes = Buffer.from(chunk as Uint8Array);
    chunks.push(bytes);
    size += bytes.length;
    if (size > mostBytes) throw usageError('Standard input is larger than 64 MiB.');
  }
  return decodeUtf8(Buffer.concat(chunks), 'Standard input');
}

/** Bytes as text. @throws MgwError('usage') naming `what` where they are not valid UTF-8. */
export function decodeUtf8(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw usageError(`${what} is not valid UTF-8.`);
  }
}
