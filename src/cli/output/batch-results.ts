import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { localError } from '../../files/local-error.ts';
import { escapeControls } from '../../printable.ts';
import { withoutSignatures } from '../../redact.ts';

/** A file that takes a line of JSON for each row as it ends. */
export interface Results {
  /** Returns when the line is on disk. @throws MgwError('local_io'). */
  add(result: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the file of `--results`, which only the owner can read; lines are added to those that are there. `redact` takes the key out
 * of a line, and no address in it is signed.
 * @throws MgwError('local_io'), exit 10.
 */
export async function openResults(path: string, redact: (text: string) => string): Promise<Results> {
  const file = await open(path, 'a', 0o600).catch((error: unknown) => {
    throw localError(error, resolve(path), 'no');
  });
  return {
    add: async (result) => {
      try {
        await file.write(`${withoutSignatures(redact(escapeControls(JSON.stringify(result))))}\n`);
        await file.datasync();
      } catch (error) {
        throw localError(error, resolve(path), 'yes');
      }
    },
    close: () => file.close(),
  };
}
