import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { plainFile } from '../open-flags.ts';
import { readTail } from './durable-file.ts';

const { O_APPEND, O_CREAT, O_WRONLY } = constants;
const lineLength = 'job_00000000000000\n'.length;

/**
 * The ids of jobs that have succeeded, which nothing takes back (`fold.ts`): a file of lines, so that whoever looks for
 * others need not read these. A hint, and a copy: where it is lost or cannot be written, more jobs are read.
 */
export class SuccessLog {
  readonly #path: string;
  readonly #ids = new Set<string>();
  /** Bytes; undefined where it was not asked for. */
  #read: number | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** The ids as they stand in the file now. */
  ids(): ReadonlySet<string> {
    const read = this.#read ?? 0;
    const tail = readTail(this.#path, () => read)?.tail.toString('latin1') ?? '';
    const whole = tail.slice(0, tail.lastIndexOf('\n') + 1);
    for (let at = 0; at < whole.length; at = whole.indexOf('\n', at) + 1)
      this.#ids.add(whole.slice(at, at + lineLength - 1));
    this.#read = read + whole.length;
    return this.#ids;
  }

  /** Makes up for a job that was found to be missing by whoever has asked for all of them. */
  complete(id: string): void {
    if (this.#read === undefined || this.#ids.has(id)) return;
    this.#ids.add(id);
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
