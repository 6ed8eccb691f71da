import { readdirSync, statSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { systemCode } from '../errors.ts';
import { coalesce } from '../files/make-folder.ts';
import type { Job } from '../job.ts';
import { appendFile, createFile, readTail } from './durable-file.ts';
import { IndexLines, indexLine, type IndexEntry, type IndexKind } from './index-lines.ts';
import type { Ids } from './names.ts';

/** The job records. An index restores its lost lines from them. */
export interface JobSource {
  /** The folder that contains the job records. */
  folder: string;
  /** Returns the ids of all records, oldest first. */
  ids: () => string[];
  /** Returns all index entries for a job. */
  entriesOf: (id: string) => IndexEntry[];
}

/** Returns all index entries for a job. A job without a record was removed. */
export function entriesOf(id: string, job: Job | undefined): IndexEntry[] {
  if (job === undefined) return [{ kind: 'removed', value: '', id }];
  const { handle, state, record } = job;
  return [
    { kind: 'fingerprint', value: record.fingerprint, id },
    ...(handle === undefined ? [] : [{ kind: 'handle', value: handle, id } as const]),
    ...(state === 'succeeded' ? [{ kind: 'succeeded', value: '', id } as const] : []),
  ];
}

const filler: IndexEntry = { kind: 'filler', id: 'job_00000000000000', value: '' };

/**
 * A ledger's index. It only speeds up searches; payments depend on claims. `index.log` lists the jobs; `handles.log`
 * lists their handles and successes. With two logs, a submission reads only a third of the index.
 */
export class JobIndex {
  readonly #jobs: IndexLog;
  readonly #handles: IndexLog;

  constructor(stateDir: string, jobs: JobSource) {
    const log = (name: string, isHandles: boolean): IndexLog =>
      new IndexLog(join(stateDir, `${name}.log`), join(stateDir, `${name}.count`), {
        ...jobs,
        entriesOf: (id) => jobs.entriesOf(id).filter(({ kind }) => isInHandles(kind) === isHandles),
      });
    this.#jobs = log('index', false);
    this.#handles = log('handles', true);
  }

  /**
   * Adds entries. They are durable when the call returns, unless `isDurable` is false.
   * @returns a function that checks whether the files still contain the entries
   */
  async add(entries: readonly IndexEntry[], isDurable = true): Promise<() => boolean> {
    const checks = await Promise.all(
      [this.#jobs, this.#handles].map((log) => {
        const logEntries = entries.filter(({ kind }) => this.#logOf(kind) === log);
        return logEntries.length === 0 ? Promise.resolve(() => true) : log.add(logEntries, isDurable);
      }),
    );
    return () => checks.every((isPresent) => isPresent());
  }

  /**
   * Adds the missing lines of a job that another process created. That process may have died before it noticed that the
   * index had been replaced ({@link writeIndexed}).
   */
  async restore(id: string): Promise<void> {
    await this.#jobs.restore(id);
  }

  /**
   * Returns the ids of jobs with the given fingerprint or handle, newest line first. Their records may no longer exist.
   */
  async find(kind: IndexKind, value: string): Promise<string[]> {
    const lines = await this.#logOf(kind).completeLines();
    return [...new Set(lines.find(kind, value).reverse())];
  }

  /** Returns the ids of all jobs, newest first. Their records may no longer exist. */
  async ids(excludeSucceeded: boolean): Promise<Ids> {
    const lines = await this.#jobs.completeLines();
    return lines.ids(excludeSucceeded ? await this.#handles.completeLines() : undefined);
  }

  /** Returns the ids of jobs that are known to have been removed. */
  async removed(): Promise<Set<string>> {
    return (await this.#jobs.completeLines()).removed();
  }

  /** Whether the index contains a job's handle. */
  async isAccepted(id: string): Promise<boolean> {
    return (await this.#handles.completeLines()).has('handle', id);
  }

  /** Returns the highest id among recently added jobs; undefined if there are none. */
  async highest(): Promise<string | undefined> {
    return (await this.#jobs.completeLines()).highest;
  }

  #logOf(kind: IndexKind): IndexLog {
    return isInHandles(kind) ? this.#handles : this.#jobs;
  }
}

function isInHandles(kind: IndexKind): boolean {
  return kind === 'handle' || kind === 'succeeded';
}

/**
 * A log in which each line states one fact about a job. Before lines are appended, one byte for each line is appended
 * to a second file, the count. If the log has fewer valid lines than the count has bytes, lines were lost and are
 * restored from the jobs (design 4).
 */
class IndexLog {
  readonly #path: string;
  readonly #countPath: string;
  readonly #jobs: JobSource;
  readonly #lines = new IndexLines();
  /** The inode of the file that was read last. */
  #inode: number | undefined;
  #completing: Promise<void> | undefined;
  /** Lines to be written together, and whether any of them must be durable. */
  #queue: string[] = [];
  #isDurable = false;
  readonly #write = coalesce(() => this.#writeQueued());

  constructor(path: string, countPath: string, jobs: JobSource) {
    this.#path = path;
    this.#countPath = countPath;
    this.#jobs = jobs;
  }

  /**
   * Adds entries. They are durable when the call returns, unless `isDurable` is false.
   * @returns a function that checks whether the file still contains the entries
   */
  async add(entries: readonly IndexEntry[], isDurable = true): Promise<() => boolean> {
    const lines = entries.map(indexLine);
    this.#queue.push(...lines);
    this.#isDurable ||= isDurable;
    const { size } = await this.#write();
    return () => readTail(this.#path, () => size)?.tail.includes(lines.join('')) === true;
  }

  // Does not read the log. If the log has lost lines, it still has fewer lines than its count after this write. Returns
  // the log's status before the write.
  async #writeQueued(): Promise<Stats> {
    // Take the lines first: later callers wait for the next write, so it must contain their lines.
    const lines = this.#queue.splice(0);
    const isDurable = this.#isDurable;
    this.#isDurable = false;
    await this.#completeUnless(() => sizeOf(this.#countPath) > 0);
    const complete = (): Promise<void> => this.#complete();
    const wasEmptied = await repeatIfRemoved(() => this.#count(lines.length), complete);
    if (wasEmptied) await complete();
    const write = (): ReturnType<typeof appendFile> => appendFile(this.#path, lines.join(''), { isDurable });
    return (await repeatIfRemoved(write, complete)).before;
  }

  /** Adds a job's lines that are missing from the log. */
  async restore(id: string): Promise<void> {
    await this.completeLines();
    for (const entry of this.#missing([id])) await this.add([entry]);
  }

  #missing(ids: readonly string[]): IndexEntry[] {
    return ids
      .flatMap((id) => this.#jobs.entriesOf(id))
      .filter(({ kind, id, value }) => !this.#lines.find(kind, value).includes(id));
  }

  /** Reads the log, completes it if lines were lost, and returns its lines. */
  async completeLines(): Promise<IndexLines> {
    await this.#completeUnless(() => {
      const count = sizeOf(this.#countPath);
      this.#refresh();
      return count > 0 ? this.#lines.count >= count : isEmpty(this.#jobs.folder);
    });
    // Concurrent completions may have written surplus lines. Unless these are counted, a later loss goes unnoticed. If
    // they cannot be counted, for example on a full disk, the search still succeeds.
    const uncounted = this.#lines.count - sizeOf(this.#countPath);
    if (uncounted > 0) await this.#count(uncounted).catch(() => undefined);
    return this.#lines;
  }

  async #completeUnless(isComplete: () => boolean): Promise<void> {
    while (this.#completing !== undefined) await this.#completing;
    if (isComplete()) return;
    this.#completing = this.#complete().finally(() => (this.#completing = undefined));
    await this.#completing;
  }

  // Synchronous, because each submission calls this several times, and the thread pool takes ten times as long.
  #refresh(): void {
    const lines = this.#lines;
    const current = statSync(this.#path, { throwIfNoEntry: false });
    if (current !== undefined && current.ino === this.#inode && current.size === lines.length) return;
    const newLines = readTail(
      this.#path,
      ({ ino, size }) => {
        if (ino !== this.#inode || size < lines.length) lines.clear();
        this.#inode = ino;
        return lines.length;
      },
      (bytes) => lines.reserve(bytes),
    );
    if (newLines === undefined) lines.clear();
    else lines.add(newLines.tail.length);
  }

  #complete(): Promise<void> {
    return repeatIfRemoved(() => this.#addMissing());
  }

  // Any number of processes may complete the log concurrently: each adds the lines that it does not find. If the log
  // loses lines meanwhile, it has fewer lines than its count afterwards.
  async #addMissing(): Promise<void> {
    await Promise.all(
      [this.#path, this.#countPath].map((path) => createFile(path, '').catch(ignoreExisting)),
    );
    const count = sizeOf(this.#countPath);
    this.#refresh();
    const missing = this.#missing(this.#jobs.ids());
    // A log with an empty count would be treated as lost, so it has at least one line.
    const lost = Math.max(1, count) - this.#lines.count;
    missing.push(...Array<IndexEntry>(Math.max(0, lost - missing.length)).fill(filler));
    // Count all lines before writing the first one. If the process dies in between, the index is known to be
    // incomplete.
    await this.#count(this.#lines.count + missing.length - count);
    while (missing.length > 0)
      await appendFile(this.#path, missing.splice(0, maxLinesPerWrite).map(indexLine).join(''));
    this.#refresh();
  }

  // Returns whether the count was empty before.
  async #count(lines: number): Promise<boolean> {
    if (lines <= 0) return false;
    const options = { tornEnd: '', isDurable: false };
    return (await appendFile(this.#countPath, '+'.repeat(lines), options)).before.size === 0;
  }
}

// Repeats an action during which a file was removed. Calls `recover` before each repetition.
async function repeatIfRemoved<T>(act: () => Promise<T>, recover?: () => Promise<void>): Promise<T> {
  for (let tries = 1; ; tries += 1)
    try {
      return await act();
    } catch (error) {
      if (systemCode(error) !== 'ENOENT' || tries === maxTries) throw error;
      await recover?.();
    }
}

/**
 * Adds a record's index entries, then writes the record, so that a complete index never misses a job. Adds the entries
 * again if the index was replaced in the meantime: the new file may have been completed before the record existed.
 * @param add adds the entries: {@link IndexLog.add}
 */
export async function writeIndexed<T>(
  add: () => Promise<() => boolean>,
  write: () => Promise<T>,
): Promise<T> {
  const isStillIndexed = await add();
  const result = await write();
  if (!isStillIndexed()) await add();
  return result;
}

/** Maximum number of attempts to write a file that other processes remove. */
const maxTries = 5;

/** Maximum number of lines in one write. */
const maxLinesPerWrite = 1000;

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

function isEmpty(folder: string): boolean {
  return readdirSync(folder).length === 0;
}

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}
