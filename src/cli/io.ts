import type { Readable, Writable } from 'node:stream';
import type { Charged } from '../errors.ts';
import { localError } from '../http/local-error.ts';

/** The three streams of a process, and its environment, so that a command can be run without one. */
export interface Io {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number };
  env: NodeJS.ProcessEnv;
}

/**
 * Writes and resolves when the text has left for the system. A closed pipe is the reader's wish (`mgw … | head`) and
 * no error.
 * @throws MgwError('local_io') where the stream takes nothing (a full disk); `charged` is what it says of the money.
 */
export function write(stream: Writable, text: string | Uint8Array, charged: Charged = 'no'): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => {
      if (error && (error as NodeJS.ErrnoException).code !== 'EPIPE')
        reject(localError(error, 'standard output', charged));
      else resolve();
    });
  });
}
