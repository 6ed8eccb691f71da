import { realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, parse, relative, resolve, sep } from 'node:path';
import { usageError } from '../../../errors.ts';
import { printableLine } from '../../../printable.ts';
import { decodeUtf8, readInputFile } from '../../input.ts';

/**
 * Returns the real paths of the folders that the rows of a manifest may name files in: the manifest's, the current one,
 * and those of `--allow-files`. The root folder must be given explicitly, since it contains `/proc`.
 * @param manifest its path; undefined if it came from standard input
 * @throws MgwError('usage') if a folder of `--allow-files` does not exist.
 */
export async function readableFolders(
  manifest: string | undefined,
  allowed: readonly string[] = [],
): Promise<string[]> {
  const implied = manifest === undefined ? ['.'] : [dirname(manifest), '.'];
  const real = await Promise.all(implied.map((folder) => realpath(folder)));
  const given = allowed.map((folder) =>
    realpath(folder).catch(() => {
      throw usageError(`--allow-files: there is no folder ${printableLine(folder, 200)}.`);
    }),
  );
  return [...real.filter((folder) => parse(folder).root !== folder), ...(await Promise.all(given))];
}

/** Reads the local files that the rows of a batch name (design 13): a manifest may come from a stranger. */
export class RowFiles {
  readonly #folders: readonly string[];
  readonly #base: string;

  /**
   * @param folders real paths, of {@link readableFolders}
   * @param base the folder that relative paths start from
   */
  constructor(folders: readonly string[], base = '.') {
    this.#folders = folders;
    this.#base = base;
  }

  /**
   * Returns the bytes of a file.
   * @throws MgwError('usage') if its real path is outside the folders, or it cannot be read. The error does not quote it.
   */
  async bytes(path: string, field: string): Promise<Uint8Array> {
    return readInputFile(await this.#permitted(path, field), field);
  }

  /** Returns a file as text. @throws MgwError('usage') like {@link bytes}, or if it is not UTF-8. */
  async text(path: string, field: string): Promise<string> {
    return decodeUtf8(await this.bytes(path, field), `${field}: the file`);
  }

  // Outside the folders, a missing and an existing file give the same error.
  async #permitted(path: string, field: string): Promise<string> {
    const wanted = resolve(this.#base, path);
    const shown = printableLine(path, 200);
    const real = await realpath(wanted).catch(() => undefined);
    if (real !== undefined && this.#isInside(real)) return real;
    const folder = await realpath(dirname(wanted)).catch(() => dirname(wanted));
    if (real === undefined && this.#isInside(join(folder, parse(wanted).base)))
      throw usageError(`${field}: cannot read ${shown}: there is no such file.`);
    throw usageError(
      `${field}: ${shown} is outside the folders that this batch may read. To allow it: --allow-files ${quoted(dirname(wanted))}`,
    );
  }

  #isInside(path: string): boolean {
    return this.#folders.some((folder) => {
      const within = relative(folder, path);
      return within !== '' && !isAbsolute(within) && within.split(sep)[0] !== '..';
    });
  }
}

function quoted(folder: string): string {
  const shown = printableLine(folder, 200);
  return /^[\w./@:+-]+$/.test(shown) ? shown : `'${shown.replaceAll("'", `'\\''`)}'`;
}
