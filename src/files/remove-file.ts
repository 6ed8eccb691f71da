import { unlinkSync } from 'node:fs';
import { systemCode } from '../errors.ts';

/** Removes a file; one that is not there is gone already. (`rmSync` looks twice at what it removes.) */
export function removeFile(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (systemCode(error) !== 'ENOENT') throw error;
  }
}
