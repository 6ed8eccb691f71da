import { rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { systemCode } from '../errors.ts';
import { localError } from '../files/local-error.ts';
import { removeLeftovers } from '../files/leftovers.ts';
import type { Claimant } from '../files/output-lock.ts';
import { speechIdentity } from '../jobs/lock-output.ts';
import { makeOwnFolder } from '../files/make-folder.ts';

/**
 * The folder in which pieces of speech are kept until all of them are there. A person's own files may be in it too: only
 * names that hold the hash of what was ordered are written, and only those are removed.
 */
export class PiecesFolder {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Makes it, durably: what was paid for is in it. @throws MgwError('local_io') if it cannot be, charged 'no'. */
  async open(): Promise<void> {
    await makeOwnFolder(this.path).catch((error: unknown) => {
      throw localError(error, this.path, 'no');
    });
  }

  /** Where a piece goes; `fingerprint` is that of what is ordered. */
  target(index: number, fingerprint: string): string {
    return join(this.path, `${String(index + 1).padStart(4, '0')}-${fingerprint.slice(0, 16)}`);
  }

  /**
   * Removes pieces, what killed and broken takes of them left, and the folder, unless something else is in it.
   * @throws what the file system throws.
   */
  async clear(targets: readonly string[], claimant: Claimant): Promise<void> {
    for (const target of targets) {
      for (const path of [target, `${target}.part`]) await rm(path, { force: true });
      await removeLeftovers(target, speechIdentity, claimant);
    }
    await this.leave();
  }

  /** Removes the folder if nothing is in it. @throws what the file system throws. */
  async leave(): Promise<void> {
    await rmdir(this.path).catch((error: unknown) => {
      if (!notEmpty.has(systemCode(error) ?? '')) throw error;
    });
  }
}

const notEmpty = new Set(['ENOTEMPTY', 'EEXIST', 'ENOENT']);
