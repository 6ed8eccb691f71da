import { realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { messageOf, systemCode, usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';
import { isObjectUrl } from '../store-url.ts';

/** The folder that contains all files an agent may read or write (design 16). */
export class Root {
  /** The real path of the folder. */
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Opens the folder. @throws MgwError('usage') if there is none. */
  static async open(folder: string): Promise<Root> {
    try {
      return new Root(await realpath(folder));
    } catch (error) {
      throw usageError(`--root ${printableLine(folder)}: ${messageOf(error)}`);
    }
  }

  /**
   * Returns the absolute path of a file that is read or written.
   * @param given relative to the root, or absolute
   * @param what the name of the argument, for the error
   * @throws MgwError('usage') if its real path, or that of the folder it would be created in, is outside of the root or
   * cannot be resolved.
   */
  async file(given: string, what: string): Promise<string> {
    const shown = `${what}: ${printableLine(given, 200)}`;
    if (isObjectUrl(given)) throw usageError(`${shown} is no path: give one below ${this.path}.`);
    const path = resolve(this.path, given);
    if (!given.includes('\0') && this.#holds(path)) {
      const real = await realPathOf(path).catch((error: unknown) => {
        throw usageError(`${shown}: ${messageOf(error)}`);
      });
      if (this.#holds(real)) return path;
    }
    throw usageError(`${shown} is outside of ${this.path}, the folder this server may use.`);
  }

  #holds(path: string): boolean {
    const way = relative(this.path, path);
    return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
  }
}

// Returns the real path that a missing file would have.
async function realPathOf(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    if (systemCode(error) !== 'ENOENT' || parent === path) throw error;
    return join(await realPathOf(parent), relative(parent, path));
  }
}
