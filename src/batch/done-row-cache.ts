import { hash } from 'node:crypto';
import { appendFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { logOf } from '../files/claim-log.ts';
import type { Job } from '../job.ts';
import { tryParseJson } from '../json.ts';
import { findKey, keyOfRetry } from '../jobs/ref.ts';
import { type OutputPlace, pathExists } from '../jobs/output.ts';
import { strictError } from '../jobs/receipt.ts';
import { checkedLine, textOfLine } from '../ledger/event-log.ts';
import { readBytes } from '../ledger/durable-file.ts';
import { removeFile } from '../files/whole-file.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { makeFolder } from '../files/make-folder.ts';
import { isLocalPath } from '../protocols/protocol.ts';
import { assetFields, fieldName, fieldsOfFlags, listItems } from './manifest/fields.ts';
import type { ManifestRecord, WrittenField } from './manifest/fields.ts';
import { type PlannedRow, countOf, hashOf, isSpeech, type Work } from './planned-row.ts';
import { mayRefer } from './row-graph.ts';
import { filesOf, isPresent } from './row-state.ts';

const doneRow = z.object({
  id: z.string(),
  /** True if the manifest contains the row's id. */
  isNamed: z.boolean(),
  /** The hash of the row's request. */
  hash: z.string(),
  /** The row's output path in the plan. */
  path: z.string(),
  /** The path of the latest retry's file, if it differs from `path`. */
  retryPath: z.optional(z.string()),
  /** The number of files that the row requests. */
  count: z.number(),
  take: z.number(),
  job: z.string(),
  /** The job's version in the ledger. */
  version: z.string(),
  files: z.array(z.object({ path: z.string(), bytes: z.number() })),
});

/** A done row's cached record. */
export type DoneRow = z.infer<typeof doneRow>;

const markLength = 32;
const markStart = '{"mark":"'.length;
const newline = 0x0a;
/** The number of lines to write at once. */
const linesPerWrite = 100;
/** The maximum size of the cache file, in bytes. A larger file is discarded. */
const maxBytes = 256 * 1024 * 1024;

/**
 * Caches a batch's done rows by a hash of each row as written in the manifest. Recognizes a cached row without
 * composing or checking it, and without reading its job. The cache file has one line per done row. A row without a line
 * is looked up in the ledger. The ledger and the disk determine whether a cached row is still done.
 */
export class DoneRowCache {
  readonly #path: string;
  readonly #isByIndex: boolean;
  readonly #bytes: Buffer;
  /** The offset of the last line for each hash. */
  readonly #starts = new Map<string, number>();
  #added: string[] = [];

  /**
   * Opens a batch's cache; returns undefined if its folder cannot be used.
   * @param path the prefix of the file's path
   * @param about everything else that affects a row, as a JSON value. Rows cached under a different value are
   * discarded.
   */
  static async open(path: string, about: unknown, place: OutputPlace): Promise<DoneRowCache | undefined> {
    const cachePath = `${path}.${hash('sha256', JSON.stringify(about)).slice(0, 16)}.rows`;
    try {
      await makeFolder(dirname(path));
      const siblings = readdirSync(dirname(path)).map((name) => join(dirname(path), name));
      const isStale = (candidate: string): boolean =>
        candidate !== cachePath && candidate.startsWith(`${path}.`) && candidate.endsWith('.rows');
      for (const other of siblings.filter(isStale)) removeFile(other);
      const bytes = readBytes(cachePath) ?? Buffer.alloc(0);
      if (bytes.length <= maxBytes) return new DoneRowCache(cachePath, bytes, place);
      removeFile(cachePath);
      return new DoneRowCache(cachePath, Buffer.alloc(0), place);
    } catch {
      // Without a cache, every row is looked up in the ledger.
      return undefined;
    }
  }

  private constructor(path: string, bytes: Buffer, place: OutputPlace) {
    this.#path = path;
    this.#isByIndex = place.template.includes('{index}');
    this.#bytes = bytes;
    for (let start = 0, end; (end = bytes.indexOf(newline, start)) >= 0; start = end + 1)
      this.#starts.set(bytes.toString('latin1', start + markStart, start + markStart + markLength), start);
  }

  /** Returns a row's hash; undefined if the row depends on its position, on a file or on another job. */
  contentHash({ fields }: ManifestRecord): string | undefined {
    if (this.#isByIndex || !fields.every(isSelfContained)) return undefined;
    const values = fields.map(({ name, value, isText }) => [name, value, isText]);
    return hash('sha256', JSON.stringify(values)).slice(0, markLength);
  }

  /** Returns a row's cached record; undefined if there is none, or if a different version of mgw wrote it. */
  find(key: string | undefined): DoneRow | undefined {
    const start = key === undefined ? undefined : this.#starts.get(key);
    if (start === undefined) return undefined;
    const line = this.#bytes.toString('utf8', start, this.#bytes.indexOf(newline, start));
    return z.safeParse(doneRow, tryParseJson(textOfLine(line) ?? '')).data;
  }

  /** Adds a done row. Rows are written in groups. Call {@link write} to write the last group. */
  add(key: string, row: DoneRow): void {
    this.#added.push(`${checkedLine({ mark: key, ...row })}\n`);
    if (this.#added.length === linesPerWrite) this.write();
  }

  /** Writes the added rows to disk. Ignores errors. */
  write(): void {
    try {
      appendFileSync(this.#path, this.#added.splice(0).join(''), { mode: 0o600 });
    } catch {
      // A row that is not in the cache is looked up in the ledger.
    }
  }
}

/**
 * Caches a row if its job has succeeded and all its files exist, unless the request depends on data outside the row.
 */
export async function rememberRow(
  planned: PlannedRow,
  job: Job,
  { known, ledger }: { known?: DoneRowCache | undefined; ledger: Ledger },
): Promise<void> {
  const { row, work, id, path, rowPath = path, take, cacheKey } = planned;
  // A later take, even an unpaid one, would invalidate the cached row.
  if (known === undefined || cacheKey === undefined || planned.next !== undefined || needsListing(work))
    return;
  // It is safe to read the version after the job, because no later event undoes a success.
  const version = await ledger.version(job.id);
  const files = filesOf(job, path, countOf(work))?.map((file) => ({ path: file.path, bytes: file.bytes }));
  if (version === undefined || files === undefined || job.state !== 'succeeded') return;
  // Does not cache a row whose result differs from the request, because a run with --strict must read its job.
  if (strictError(job, job.files) !== undefined) return;
  const isNamed = row.id !== undefined;
  const hash = hashOf(work);
  const cached = {
    id,
    isNamed,
    hash,
    path: rowPath,
    retryPath: path === rowPath ? undefined : path,
    count: countOf(work),
    take: take.number,
    version,
    files,
  };
  known.add(cacheKey, { ...cached, job: job.id });
}

/** Whether a cached row is still done: its job is unchanged, its files exist, and the row has no retry. */
export async function isStillDone(row: DoneRow, key: string, ledger: Ledger): Promise<boolean> {
  if ((await ledger.version(row.job)) !== row.version || !row.files.every(isPresent)) return false;
  // A killed run may have left temporary files. Looking up the row in the ledger removes them.
  if (row.files.some(({ path }) => pathExists(logOf(path)))) return false;
  const nextRetry = findKey(ledger, keyOfRetry(key, row.take + 1));
  return nextRetry.then(
    ({ isClaimed }) => !isClaimed,
    () => false,
  );
}

// Whether a request depends on the gateway's model list, which may change between runs.
function needsListing(work: Work): boolean {
  if (isSpeech(work)) return false;
  const { protocol, userBody, body } = work;
  return [userBody, body].some((each) => protocol.needsListing?.(each) !== undefined);
}

/**
 * Whether rows with the given defaults can be cached. False if a default depends on the row's position, on a file or on
 * a job.
 */
export function canBeCached(fields: readonly WrittenField[]): boolean {
  return fields.every(isSelfContained);
}

const fileFields = fieldsOfFlags((flag) => flag.kind === 'file').add('file');

function isSelfContained({ name, value }: WrittenField): boolean {
  const field = fieldName(name);
  const readsFile = typeof value === 'string' && (value.startsWith('@') || value.includes('{index}'));
  const assets = assetFields.has(field) ? [value].flat() : [];
  const isLocalAsset = assets.some((each) => typeof each === 'string' && listItems(each).some(isLocalPath));
  return !readsFile && !isLocalAsset && !mayRefer({ name, value }) && !fileFields.has(field);
}
