import { readdirSync, statSync, type Stats } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { systemCode } from '../errors.ts';
import { coalesce } from '../files/make-folder.ts';
import { appendFile, createFile, readTail, repeatIfRemoved } from './durable-file.ts';
import { countLine, CountLines, countLineLength, hasCorrection, totalAt } from './index-count.ts';
import { IndexLines, indexLine, type IndexEntry, type IndexKind, totalOf, viewOf } from './index-lines.ts';
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

  /** Returns the highest id among recently added jobs; undefined if there are none. Lost lines do not matter. */
  highest(): string | undefined {
    return this.#jobs.readLines().highest;
  }

  #logOf(kind: IndexKind): IndexLog {
    return isInHandles(kind) ? this.#handles : this.#jobs;
  }
}

function isInHandles(kind: IndexKind): boolean {
  return kind === 'handle' || kind === 'succeeded';
}

type Append = ReturnType<typeof appendFile>;

/**
 * A log in which each line states one fact about a job. Before lines are appended, the total of their checksums is
 * appended to a second file, the count. If the two files have different totals, lines were lost and are restored from the
 * jobs (design 4).
 */
class IndexLog {
  readonly #path: string;
  readonly #countPath: string;
  readonly #jobs: JobSource;
  readonly #lines = new IndexLines();
  readonly #counted = new CountLines();
  /** Lines to be written together, and whether any of them must be durable. */
  #queue: string[] = [];
  #isDurable = false;
  readonly #write = coalesce(() => this.#writeQueued());
  readonly #complete = coalesce(() => this.#addLost(maxTries));

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

  // Returns the log's status before the write.
  async #writeQueued(): Promise<Stats> {
    // Take the lines first: later callers wait for the next write, so it must contain their lines.
    const [lines, isDurable] = [this.#queue.splice(0), this.#isDurable];
    this.#isDurable = false;
    const complete = (): Promise<void> => repeatIfRemoved(() => this.#addMissing());
    if (!this.#hasCount()) await complete();
    const line = countLine(totalOf(lines));
    const count = (): Append => repeatIfRemoved(() => this.#count(line), complete);
    const counted = await count();
    if (counted.before.size === 0) await complete();
    const write = (): Append => appendFile(this.#path, lines.join(''), { isDurable });
    const { before } = await repeatIfRemoved(write, complete);
    // A process that completed the log between the two writes may have removed these lines from the count.
    if (this.#isCorrectedAfter(counted.after.size, line) && (await this.#steadySurplus()) !== 0)
      await count();
    return before;
  }

  // Whether the count was corrected after its first `size` bytes, which end in `line`, or was replaced.
  #isCorrectedAfter(size: number, line: string): boolean {
    const added = this.#countAfter(size, line);
    return added === undefined || hasCorrection(added);
  }

  // Returns the count without its first `size` bytes; undefined if these do not end in `line`.
  #countAfter(size: number, line: string): string | undefined {
    const tail = readTail(this.#countPath, () => Math.max(0, size - line.length))?.tail.toString('latin1');
    return tail?.startsWith(line) === true ? tail.slice(line.length) : undefined;
  }

  /** Adds a job's lines that are missing from the log. */
  async restore(id: string): Promise<void> {
    await this.completeLines();
    for (const entry of this.#missing([id])) await this.add([entry]);
  }

  #missing(ids: readonly string[]): IndexEntry[] {
    const found = new Map<string, Set<string>>();
    return ids
      .flatMap((id) => this.#jobs.entriesOf(id))
      .filter(({ kind, id, value }) => {
        const known = found.get(kind + value) ?? new Set(this.#lines.find(kind, value));
        found.set(kind + value, known);
        return !known.has(id);
      });
  }

  /** Reads the log, completes it if lines were lost, and returns its lines. */
  async completeLines(): Promise<IndexLines> {
    // Completes the log once more if it loses lines meanwhile.
    for (let tries = 0; tries < 2 && !this.#isComplete(); tries += 1) await this.#complete();
    return this.#lines;
  }

  #isComplete(): boolean {
    return this.#hasCount() ? this.#surplus() === 0 : readdirSync(this.#jobs.folder).length === 0;
  }

  /** Reads the log, and returns its lines without those that were lost. */
  readLines(): IndexLines {
    refresh(this.#path, this.#lines);
    return this.#lines;
  }

  // Whether the count ends in a whole line. Reading all of a long count would take milliseconds.
  #hasCount(): boolean {
    const tail = readTail(this.#countPath, ({ size }) => Math.max(0, size - countLineLength))?.tail;
    return tail?.length === countLineLength && totalAt(viewOf(tail), 0) !== undefined;
  }

  // Returns the counted total minus that of the log, modulo 2 ** 20.
  #surplus(): number {
    // The files may have been replaced, and then have grown to their earlier lengths.
    if (this.#countAfter(this.#counted.length, this.#counted.lastLine) === undefined) this.#clear();
    refresh(this.#countPath, this.#counted);
    return (this.#counted.total - this.readLines().total) & 0xfffff;
  }

  // Returns the surplus once it is 0, or has stayed the same during a pause. Other processes may have counted lines that
  // they are about to write.
  async #steadySurplus(): Promise<number> {
    for (let [pauses, earlier] = [0, -1]; ; pauses += 1) {
      const surplus = this.#surplus();
      if (surplus === 0 || surplus === earlier || pauses === maxPauses) return surplus;
      earlier = surplus;
      await delay(pauseMs);
    }
  }

  async #addLost(tries: number): Promise<void> {
    if (!this.#hasCount() || (await this.#steadySurplus()) !== 0)
      await repeatIfRemoved(() => this.#addMissing(tries));
  }

  // Any number of processes may complete the log concurrently: each adds the lines that it does not find. If the log
  // loses lines meanwhile, the totals differ afterwards.
  async #addMissing(tries = maxTries): Promise<void> {
    for (const path of [this.#path, this.#countPath]) await createFile(path, '').catch(ignoreExisting);
    // The log may have been cut, and then have grown to its earlier length.
    this.#clear();
    const isCounted = this.#hasCount();
    const surplus = this.#surplus();
    const { length, lastLine } = this.#counted;
    const lines = this.#missing(this.#jobs.ids()).map(indexLine);
    // Another process has completed the log while this one read the jobs.
    if (tries > 1 && this.#isCorrectedAfter(length, lastLine)) return this.#addLost(tries - 1);
    // Corrects the count: a lost line may belong to a removed job, and a line of the count may be lost too.
    const total = totalOf(lines) - surplus;
    if (isCounted && total === 0 && lines.length === 0) return;
    // Count all lines before writing the first one. If the process dies in between, the totals differ.
    const counting = this.#count(countLine(total, true));
    // If the log contains every job, a search succeeds even on a full disk.
    await (isCounted && lines.length === 0 ? counting.catch(() => undefined) : counting);
    while (lines.length > 0) await appendFile(this.#path, lines.splice(0, maxLinesPerWrite).join(''));
    this.readLines();
  }

  #clear(): void {
    this.#lines.clear();
    this.#counted.clear();
  }

  #count(line: string): Append {
    return appendFile(this.#countPath, line, { isDurable: false });
  }
}

// Adds a file's new bytes to its content in memory. Synchronous, because each submission calls this several times, and
// the thread pool takes ten times as long.
function refresh(path: string, content: IndexLines | CountLines): void {
  const current = statSync(path, { throwIfNoEntry: false });
  if (current !== undefined && current.ino === content.inode && current.size === content.length) return;
  const newBytes = readTail(
    path,
    ({ ino, size }) => {
      if (ino !== content.inode || size < content.length) content.clear();
      content.inode = ino;
      return content.length;
    },
    (bytes) => content.reserve(bytes),
  );
  if (newBytes === undefined) content.clear();
  else content.add(newBytes.tail.length);
}

const pauseMs = 10;
const maxPauses = 20;
const maxTries = 5;
const maxLinesPerWrite = 1000;

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}
