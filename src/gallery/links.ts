import { realpathSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, parse, relative, sep } from 'node:path';
import type { JobFile } from '../job.ts';
import type { FileState } from './collect.ts';

/** Builds the relative URLs of files from the folder of a page. */
export class Links {
  readonly #from: string;
  readonly #folders = new Map<string, string | undefined>();

  /** @param folder The folder of the page. It need not exist. */
  constructor(folder: string) {
    this.#from = real(folder) ?? folder;
  }

  /**
   * Returns the URL of a file relative to the page, percent-encoded. Undefined if it would reveal the location on this
   * machine: on another drive, or if the two share only the root folder.
   */
  to(path: string): string | undefined {
    const folder = this.#realFolder(dirname(path));
    if (folder === undefined) return undefined;
    const way = relative(this.#from, join(folder, basename(path)));
    const steps = way.split(sep);
    const ups = steps.filter((step) => step === '..').length;
    const depth = this.#from.split(sep).filter((step) => step !== '').length;
    const isAtRoot = parse(this.#from).root === this.#from;
    if (isAbsolute(way) || (ups >= depth && !isAtRoot)) return undefined;
    return steps.map((step) => (step === '..' ? step : encodeURIComponent(step))).join('/');
  }

  #realFolder(folder: string): string | undefined {
    if (!this.#folders.has(folder)) this.#folders.set(folder, real(folder));
    return this.#folders.get(folder);
  }
}

// Going up from the target of a symbolic link does not lead back to the folder that holds the link.
function real(folder: string): string | undefined {
  try {
    return realpathSync(folder);
  } catch {
    const parent = dirname(folder);
    const above = parent === folder ? undefined : real(parent);
    return above === undefined ? undefined : join(above, basename(folder));
  }
}

/** Returns the state of a file by its size alone, for a page whose files are hashed when they are served. */
export function stateBySize({ path, bytes }: Pick<JobFile, 'path' | 'bytes'>): FileState {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return 'gone';
    return found.isFile() && found.size === bytes ? 'intact' : 'changed';
  } catch {
    return 'gone';
  }
}
