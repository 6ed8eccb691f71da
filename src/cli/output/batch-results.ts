import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { localError } from '../../files/local-error.ts';
import { escapeControls } from './json.ts';

/** A file that takes a line of JSON for each row as it ends. */
export interface Results {
  /** Returns when the line is on disk. @throws MgwError('local_io'). */
  add(result: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

/** Opens the file of `--results`; lines are added to those that are there. @throws MgwError('local_io'), exit 10. */
export async function openResults(path: string): Promise<Results> {
  const file = await open(path, 'a').catch((error: unknown) => {
    throw localError(error, resolve(path), 'no');
  });
  return {
    add: async (result) => {
      try {
        await file.write(`${escapeControls(JSON.stringify(result))}\n`);
        await file.datasync();
      } catch (error) {
        throw localError(error, resolve(path), 'yes');
      }
    },
    close: () => file.close(),
  };
}
