import { open, rm, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { decodeUtf8, maxInputBytes } from '../../io.ts';
import { localError, usageError } from '../../../errors.ts';
import { makeTempFolder } from '../../../files/make-folder.ts';
import { lineBlocks } from '../../../files/line-blocks.ts';
import { isObject, tryParseJson, type Json } from '../../../json.ts';

/** A job in the output of `mgw jobs export`, before its members are checked. */
export interface ExportedJob {
  /** The job's JSON; undefined if the text is not JSON. */
  value: Json | undefined;
  /** The job's position, for error messages. */
  place: string;
}

/**
 * Reads the output of `mgw jobs export`: any number of JSON Lines, or the document of `--json`. Only one line, or the
 * document, is in memory at a time.
 * @param what the name of the input, for errors
 * @param redact removes secrets from the text before it is parsed
 * @throws MgwError('usage') if the text is not valid UTF-8, or a line or the document is larger than 64 MiB.
 */
export async function* readExport(
  chunks: AsyncIterable<Buffer>,
  what: string,
  redact: (text: string) => string,
): AsyncGenerator<ExportedJob> {
  let line = 0;
  let document: { text: string; firstLine: number } | undefined;
  const tooLong = (): Error => usageError(`Line ${line + 1} of ${what} is larger than 64 MiB.`);
  for await (const block of lineBlocks(chunks, maxInputBytes, tooLong)) {
    for (const text of redact(decodeUtf8(block, what)).replace(/\n$/, '').split('\n')) {
      line += 1;
      // A line with only an opening brace begins a document of several lines.
      if (document === undefined && text.trim() === '{') document = { text: '', firstLine: line };
      if (document === undefined) {
        if (text.trim() !== '') yield* jobsIn(tryParseJson(text), `Line ${line}`);
        continue;
      }
      document.text += `${text}\n`;
      if (document.text.length > maxInputBytes)
        throw usageError(
          `${what} contains a JSON document larger than 64 MiB. Export the jobs without --json.`,
        );
    }
  }
  if (document !== undefined)
    yield* jobsIn(tryParseJson(document.text), `The JSON document on line ${document.firstLine}`);
}

function jobsIn(value: Json | undefined, place: string): ExportedJob[] {
  const jobs = isObject(value) ? value['jobs'] : undefined;
  return Array.isArray(jobs)
    ? jobs.map((each, index) => ({ value: each, place: `Job ${index + 1} of the JSON document` }))
    : [{ value, place }];
}

/** The position of a job in a {@link JobSpool}. */
export interface SpooledJob {
  offset: number;
  length: number;
}

/**
 * Exported jobs in a temporary file. All jobs are checked before the first one is imported, and they may not fit in
 * memory.
 */
export class JobSpool {
  readonly #path: string;
  readonly #file: FileHandle;
  #size = 0;

  private constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  /** Creates an empty file. @throws MgwError('local_io') if it cannot be created. */
  static async open(): Promise<JobSpool> {
    const path = join(makeTempFolder('mgw-import-'), 'jobs');
    return withLocalErrors(path, async () => new JobSpool(path, await open(path, 'wx+', 0o600)));
  }

  /** Adds a job. @throws MgwError('local_io') if it cannot be written. */
  async add(value: Json): Promise<SpooledJob> {
    const bytes = Buffer.from(JSON.stringify(value));
    await withLocalErrors(this.#path, () => this.#file.appendFile(bytes));
    const spooled = { offset: this.#size, length: bytes.length };
    this.#size += bytes.length;
    return spooled;
  }

  /** Returns a job. */
  async get({ offset, length }: SpooledJob): Promise<Json | undefined> {
    const { buffer } = await this.#file.read(Buffer.alloc(length), 0, length, offset);
    return tryParseJson(buffer.toString());
  }

  /** Removes the file. */
  async close(): Promise<void> {
    await this.#file.close();
    await rm(dirname(this.#path), { recursive: true, force: true });
  }
}

function withLocalErrors<T>(path: string, work: () => Promise<T>): Promise<T> {
  return work().catch((error: unknown) => {
    throw localError(error, path, 'no');
  });
}
