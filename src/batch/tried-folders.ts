import { basename, dirname } from 'node:path';
import type { Clock } from '../clock.ts';

/** For so long a folder that took a file is taken to take another, ms. */
const trustedMs = 1000;

/**
 * The folders in which a run has just tried to make a file. To try it for each row would have the file system make and
 * remove thousands of files, and some look through all that were removed lately before they make another.
 */
export class TriedFolders {
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #tried = new Map<string, { length: number; at: number }>();

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** True where a file with a name as long as this one's was made in its folder just now. */
  has(path: string): boolean {
    const { length, at } = this.#tried.get(dirname(path)) ?? { length: 0, at: -Infinity };
    return this.#clock.monotonic() - at < trustedMs && lengthOf(path) <= length;
  }

  add(path: string): void {
    this.#tried.set(dirname(path), { length: lengthOf(path), at: this.#clock.monotonic() });
  }
}

function lengthOf(path: string): number {
  return Buffer.byteLength(basename(path));
}
