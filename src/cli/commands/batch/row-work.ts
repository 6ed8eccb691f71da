import { rowFlags } from '../../../batch/manifest/fields.ts';
import type { Row } from '../../../batch/manifest/row.ts';
import type { Batch, PlanDeps } from '../../../batch/plan.ts';
import type { SpeechWork } from '../../../batch/planned-row.ts';
import { usageError } from '../../../errors.ts';
import { composeVideo } from '../../../flows/compose-video.ts';
import { oneListing } from '../../../flows/models.ts';
import { fixedExtension } from '../../../jobs/output.ts';
import type { JsonObject } from '../../../json.ts';
import { fileNamedBy, longName, type FlagValue } from '../../../protocols/compose.ts';
import { protocolNamed } from '../../../protocols/registry.ts';
import { composeSpeech } from '../../../speech/compose.ts';
import type { Context } from '../../context.ts';
import { optionObject, decodeUtf8, readInputFile } from '../../input.ts';
import { realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, parse, relative, resolve, sep } from 'node:path';
import { printableLine } from '../../../printable.ts';

/**
 * Composes and checks the rows of a batch as `video X submit` and `tts` do; fetches the listing once.
 * @param isOffline composes rows only to find their jobs: does not check them, and does not fetch the listing
 */
export function rowComposer(
  context: Context,
  { place, readable, filesFrom }: Batch,
  isOffline = false,
): PlanDeps['workOf'] {
  const listing = isOffline ? () => Promise.resolve(undefined) : oneListing(context);
  const files = new RowFiles(readable, filesFrom);
  return async (row, inputs) => {
    if (row.kind === 'tts') return speechWork(row, place.template, files, context);
    const { flags, fromFiles } = await givenFlags(row, files);
    const body = await givenBody(row.body, files);
    if (typeof row.body === 'string' && row.body.startsWith('@')) fromFiles.push('body');
    const readLocalFile = (path: string, flag: string): Promise<Uint8Array> => files.bytes(path, flag);
    const given = { body, flags, set: row.set, fromFiles, endpoint: row.endpoint };
    const parts = { ...given, readLocalFile, inputs, check: !isOffline };
    return (await composeVideo(context, protocolNamed(row.kind), parts, listing)).video;
  };
}

// Reads the files that flags name. `fromFiles` lists these flags, because their content must not be taken for a file
// name.
async function givenFlags(
  { kind, flags: written }: Row,
  files: RowFiles,
): Promise<{ flags: Record<string, FlagValue>; fromFiles: string[] }> {
  const flags: Record<string, FlagValue> = { ...written };
  const fromFiles: string[] = [];
  for (const flag of rowFlags(kind)) {
    const name = longName(flag);
    const value = written[name];
    const file = value === undefined ? undefined : fileNamedBy(flag, value);
    if (file === undefined) continue;
    if (flag.kind === 'file') flags[name] = await files.bytes(file, name);
    else {
      flags[name] = withoutEnd(await files.text(file, name));
      fromFiles.push(name);
    }
  }
  return { flags, fromFiles };
}

async function givenBody(given: Row['body'], files: RowFiles): Promise<JsonObject | undefined> {
  if (typeof given !== 'string') return given;
  if (!given.startsWith('@')) return optionObject({ text: given, isFile: false }, 'body');
  return optionObject({ text: await files.text(given.slice(1), 'body'), isFile: true }, 'body');
}

async function speechWork(
  row: Row,
  template: string,
  files: RowFiles,
  context: Context,
): Promise<SpeechWork> {
  const { flags, set, text, file, output } = row;
  if (text !== undefined && file !== undefined) throw usageError('Give text or file, not both.');
  if (text === undefined && file === undefined) throw usageError('text: missing; give text or file');
  const isRead = file !== undefined;
  const spoken = isRead ? withoutEnd(await files.text(file, 'file')).replace(/^\ufeff/, '') : (text ?? '');
  const rate = flags['sample-rate'];
  const fields = {
    set,
    isFromFile: isRead,
    ...(typeof flags['format'] === 'string' && { format: flags['format'] }),
    ...(typeof flags['speaker'] === 'string' && { speaker: flags['speaker'] }),
    ...(rate !== undefined && { sampleRate: Number(rate) }),
  };
  const target = `speech${fixedExtension(output ?? template)}`;
  const isFromFile = (field: string): boolean => isRead && 'req_params.text'.startsWith(field);
  return { protocol: 'tts', ...composeSpeech(spoken, target, fields, await context.settings()), isFromFile };
}

function withoutEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}

/**
 * Returns the real paths of the folders whose files the rows of a manifest may name: the manifest's folder, the current
 * one, and those of `--allow-files`. The root folder must be given explicitly, since it contains `/proc`.
 * @param manifest the path of the manifest; undefined for standard input
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

/**
 * Reads the local files that the rows of a batch name, within limits because a manifest may come from a stranger
 * (design 13).
 */
class RowFiles {
  readonly #folders: readonly string[];
  readonly #base: string;

  /**
   * @param folders real paths, from {@link readableFolders}
   * @param base the folder that relative paths start from
   */
  constructor(folders: readonly string[], base = '.') {
    this.#folders = folders;
    this.#base = base;
  }

  /**
   * Returns the bytes of a file.
   * @throws MgwError('usage') if its real path is outside the folders, or it cannot be read. The error does not quote
   * the file.
   */
  async bytes(path: string, field: string): Promise<Uint8Array> {
    return readInputFile(await this.#permitted(path, field), field);
  }

  /** Returns a file as text. @throws MgwError('usage') like {@link bytes}, or if it is not UTF-8. */
  async text(path: string, field: string): Promise<string> {
    return decodeUtf8(await this.bytes(path, field), `${field}: the file`);
  }

  // Outside the folders, a missing and an existing file give the same error, which does not reveal whether the file
  // exists.
  async #permitted(path: string, field: string): Promise<string> {
    const wanted = resolve(this.#base, path);
    const shown = printableLine(path, 200);
    const real = await realpath(wanted).catch(() => undefined);
    if (real !== undefined && this.#isInside(real)) return real;
    const folder = await realpath(dirname(wanted)).catch(() => dirname(wanted));
    const isHere = this.#isInside(join(folder, parse(wanted).base));
    if (real === undefined && isHere)
      throw usageError(`${field}: cannot read ${shown}: there is no such file.`);
    // For a symbolic link in a permitted folder, names the folder of its target, because the link's own folder is
    // already permitted.
    const needed = dirname((isHere && real) || wanted);
    throw usageError(
      `${field}: ${shown} is outside the folders that this batch may read. To allow it: --allow-files ${quoted(needed)}`,
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
