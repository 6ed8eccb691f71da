import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { plainFile } from '../files/open-flags.ts';
import { readTail } from './durable-file.ts';

const { O_APPEND, O_CREAT, O_WRONLY } = constants;

/**
 * The ids of jobs that have succeeded, which nothing takes back (`fold.ts`): a file of lines, so that whoever looks for
 * others need not read these. A hint, and a copy: where it is lost or cannot be written, more jobs are read.
 */
export class SuccessLog {
  readonly #path: string;
  /** Undefined where it was not asked for. */
  #added: Set<string> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Its whole lines as they stand in the file now, where a list leaves these out; else none. */
  lines({ leaveOutSucceeded } = { leaveOutSucceeded: false }): Buffer {
    if (!leaveOutSucceeded) return Buffer.alloc(0);
    this.#added ??= new Set();
    const bytes = readTail(this.#path, () => 0)?.tail ?? Buffer.alloc(0);
    return bytes.subarray(0, bytes.lastIndexOf('\n') + 1);
  }

  /** Makes up for a job that was found to be missing by whoever has asked for all of them. */
  complete(id: string): void {
    if (this.#added === undefined || this.#added.has(id)) return;
    this.#added.add(id);
    this.add(id);
  }

  /** Adds a job. */
  add(id: string): void {
    try {
      const file = openSync(this.#path, O_WRONLY | O_CREAT | O_APPEND | plainFile, 0o600);
      try {
        writeSync(file, `${id}\n`);
      } finally {
        closeSync(file);
      }
    } catch {
      // Its record tells the same.
    }
  }
}
