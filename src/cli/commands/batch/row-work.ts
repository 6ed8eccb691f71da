import { rowFlags } from '../../../batch/manifest/fields.ts';
import type { Row } from '../../../batch/manifest/row.ts';
import type { Batch, PlanDeps } from '../../../batch/plan.ts';
import type { SpeechWork } from '../../../batch/planned-row.ts';
import { usageError } from '../../../errors.ts';
import { composeVideo } from '../../../flows/compose-video.ts';
import { type Listing, oneListing } from '../../../flows/models.ts';
import { fixedExtension } from '../../../jobs/output.ts';
import type { JsonObject } from '../../../json.ts';
import { protocolNamed } from '../../../protocols/registry.ts';
import { composeSpeech, type Voice } from '../../../speech/compose.ts';
import type { Context } from '../../context.ts';
import { checkLocalPath, optionObject, readInputFile } from '../../input.ts';
import { decodeUtf8 } from '../../io.ts';
import { shellWord } from '../../output/human.ts';
import { withFiles } from '../video/body.ts';
import { realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, parse, relative, resolve, sep } from 'node:path';
import { printableLine } from '../../../printable.ts';

/**
 * Returns a function that composes and checks a batch's rows as `video X submit` and `tts` do.
 * @param isOffline whether rows are only composed to find their jobs, without checks or the model list
 * @param onlineListing the model list, fetched at most once by default
 */
export function rowComposer(
  context: Context,
  { place, readable, filesFrom, hasOnlyFlags = false }: Batch,
  isOffline = false,
  onlineListing = oneListing(context),
): PlanDeps['workOf'] {
  const listing: Listing = isOffline ? () => Promise.resolve(undefined) : onlineListing;
  const files = new RowFiles(readable, filesFrom);
  return async (row, inputs) => {
    if (hasOnlyFlags && (row.set.length > 0 || row.body !== undefined))
      throw usageError('agents cannot set body or set.PATH; only the user can run this row.');
    if (row.kind === 'tts') return speechWork(row, place.template, files, context);
    const { flags, fromFiles } = await withFiles(rowFlags(row.kind), row.flags, files);
    const body = await readBody(row.body, files);
    if (typeof row.body === 'string' && row.body.startsWith('@')) fromFiles.push('body');
    const readLocalFile = (path: string, flag: string): Promise<Uint8Array> => files.bytes(path, flag);
    const fields = { body, flags, set: row.set, fromFiles, endpoint: row.endpoint, defaults: row.defaults };
    const parts = { ...fields, readLocalFile, inputs, check: !isOffline };
    const { video } = await composeVideo(context, protocolNamed(row.kind), parts, listing);
    // Advice may quote values, and a manifest may refer to other people's files (design 13).
    return fromFiles.length === 0 ? video : { ...video, advice: [] };
  };
}

async function readBody(source: Row['body'], files: RowFiles): Promise<JsonObject | undefined> {
  if (typeof source !== 'string') return source;
  if (!source.startsWith('@')) return optionObject({ text: source, isFile: false }, 'body');
  return optionObject({ text: await files.text(source.slice(1), 'body'), isFile: true }, 'body');
}

async function speechWork(
  row: Row,
  template: string,
  files: RowFiles,
  context: Context,
): Promise<SpeechWork> {
  const { flags, defaults, set, text, file, output } = row;
  if (text !== undefined && file !== undefined) throw usageError('text cannot be combined with file.');
  if (text === undefined && file === undefined) throw usageError('text or file is required');
  const hasFile = file !== undefined;
  const speechText = hasFile
    ? (await files.text(file, 'file')).replace(/\r?\n$/, '').replace(/^\ufeff/, '')
    : (text ?? '');
  const fields = {
    set,
    isFromFile: hasFile,
    ...voiceOf(flags),
    ...(defaults && { defaults: voiceOf(defaults) }),
  };
  // The format of a row with defaults was determined when the row was enqueued.
  const target = defaults ? undefined : `speech${fixedExtension(output ?? template)}`;
  const isFromFile = (field: string): boolean => hasFile && 'req_params.text'.startsWith(field);
  return {
    protocol: 'tts',
    ...composeSpeech(speechText, target, fields, await context.settings()),
    isFromFile,
  };
}

function voiceOf({ format, speaker, 'sample-rate': rate }: Record<string, unknown>): Voice {
  return {
    ...(typeof format === 'string' && { format }),
    ...(typeof speaker === 'string' && { speaker }),
    ...(rate !== undefined && { sampleRate: Number(rate) }),
  };
}

/**
 * Returns the real paths of the folders whose files a manifest's rows may use: the manifest's folder, the current
 * folder, and those of `--allow-files`. The root folder must be allowed explicitly, because it contains `/proc`.
 * @param manifest the path of the manifest; undefined for standard input
 * @throws MgwError('usage') if a folder of `--allow-files` does not exist.
 */
export async function readableFolders(
  manifest: string | undefined,
  allowed: readonly string[] = [],
): Promise<string[]> {
  const defaultFolders = manifest === undefined ? ['.'] : [dirname(manifest), '.'];
  const realFolders = await Promise.all(defaultFolders.map((folder) => realpath(folder)));
  const allowedFolders = allowed.map((folder) =>
    realpath(folder).catch(() => {
      throw usageError(`--allow-files: no such folder: ${printableLine(folder, 200)}.`);
    }),
  );
  return [
    ...realFolders.filter((folder) => parse(folder).root !== folder),
    ...(await Promise.all(allowedFolders)),
  ];
}

/**
 * Reads local files for the rows of a batch. Reads only from allowed folders, because the manifest may be untrusted
 * (design 13).
 */
class RowFiles {
  readonly #folders: readonly string[];
  readonly #base: string;

  /**
   * @param folders the real paths of the allowed folders, from {@link readableFolders}
   * @param base the folder against which relative paths are resolved
   */
  constructor(folders: readonly string[], base = '.') {
    this.#folders = folders;
    this.#base = base;
  }

  /**
   * Returns the bytes of the given file.
   * @throws MgwError('usage') if the file's real path is outside the allowed folders, or the file cannot be read. The
   * error does not quote the file's content.
   */
  async bytes(path: string, field: string): Promise<Uint8Array> {
    return readInputFile(await this.#permittedPath(path, field), field);
  }

  /** Returns the text of the given file. @throws MgwError('usage') like {@link bytes}, or if the text is not UTF-8. */
  async text(path: string, field: string): Promise<string> {
    return decodeUtf8(await this.bytes(path, field), `${field}: the file`);
  }

  // Outside the allowed folders, missing and existing files cause the same error. Otherwise, the error would reveal
  // whether a file exists.
  async #permittedPath(path: string, field: string): Promise<string> {
    const shownPath = printableLine(path, 200);
    checkLocalPath(shownPath, field);
    const requestedPath = resolve(this.#base, path);
    const real = await realpath(requestedPath).catch(() => undefined);
    if (real !== undefined && this.#isInside(real)) return real;
    const folder = await realpath(dirname(requestedPath)).catch(() => dirname(requestedPath));
    const isPermitted = this.#isInside(join(folder, parse(requestedPath).base));
    if (real === undefined && isPermitted)
      throw usageError(`${field}: cannot read ${shownPath}: no such file.`);
    // For a symbolic link in a permitted folder, suggest the folder of its target, because the link's own folder is
    // already permitted.
    const neededFolder = dirname((isPermitted && real) || requestedPath);
    throw usageError(
      `${field}: ${shownPath} is outside the folders that this batch can read. To allow it: --allow-files ${shellWord(printableLine(neededFolder, 200))}`,
    );
  }

  #isInside(path: string): boolean {
    return this.#folders.some((folder) => {
      const relativePath = relative(folder, path);
      return relativePath !== '' && !isAbsolute(relativePath) && relativePath.split(sep)[0] !== '..';
    });
  }
}
