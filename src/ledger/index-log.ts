import { statSync, type Stats } from 'node:fs';
import { utimes } from 'node:fs/promises';
import { systemCode } from '../errors.ts';
import { together } from '../together.ts';
import { appendFile, createFile, readBytes, writeOver } from './durable-file.ts';
import {
  hashesOf,
  hashesWithIds,
  idsOf,
  IndexLines,
  lineOf,
  removedIds,
  type IndexEntry,
  type IndexKind,
} from './index-lines.ts';
import { jobIdForm, type Ids } from './job-id.ts';

/** Where an index finds out what it has lost. */
export interface Indexed {
  /** The folder of the jobs' files. */
  folder: string;
  /** Ids of all jobs, in the order in which they were made. */
  ids: () => Promise<string[]>;
  /** All that one job goes by. */
  entriesOf: (id: string) => Promise<IndexEntry[]>;
}

/** So many entries are made durable together. */
const atOnce = 1000;

/**
 * The index of a ledger: one append-only file of lines of one length, two hashes of kind and value and the job's id,
 * in the order in which things happened. It is a copy: where the file is lost or damaged, or older than the jobs, what
 * is missing is taken from the jobs themselves (design 4).
 */
export class IndexLog {
  readonly #path: string;
  readonly #sizePath: string;
  readonly #jobs: Indexed;
  readonly #lines: IndexLines;
  /** Of this process: while one is under way, an index that is older than the jobs is as it should be. */
  readonly #changes = new Set<Promise<unknown>>();
  #judging: Promise<void> | undefined;
  /** The file as it was when it was found to be whole. */
  #whole: Stats | undefined;
  /** Lines that are to be written together. */
  #queued: string[] = [];
  readonly #write = together(() => this.#writeQueued());

  constructor(path: string, jobs: Indexed) {
    this.#path = path;
    this.#sizePath = `${path}.size`;
    this.#jobs = jobs;
    this.#lines = new IndexLines(path);
  }

  /** Makes a change of the jobs' folder that ends with its entries being added. */
  async during<T>(change: () => Promise<T>): Promise<T> {
    while (this.#judging !== undefined) await this.#judging;
    const changing = change();
    this.#changes.add(changing);
    try {
      return await changing;
    } finally {
      this.#changes.delete(changing);
    }
  }

  /** Adds entries, durable on return. */
  async add(entries: readonly IndexEntry[]): Promise<void> {
    if (entries.length === 0) return;
    this.#queued.push(...entries.map(lineOf));
    await this.#write();
  }

  async #writeQueued(): Promise<void> {
    const text = this.#queued.splice(0).join('');
    try {
      await appendFile(this.#path, text, '\n');
    } catch (error) {
      if (systemCode(error) !== 'ENOENT') throw error;
      await createFile(this.#path, '').catch(ignoreExisting);
      await appendFile(this.#path, text, '\n');
    }
    this.#noteSize();
  }

  /** The jobs that go by a value and were not removed, newest first; a job's file may be gone all the same. */
  async lookup(kind: IndexKind, value: string): Promise<string[]> {
    await this.#read();
    if (![...this.#lines.find(kind, value).keys()].every((id) => jobIdForm.test(id))) {
      await this.#complete(true);
      await this.#read();
    }
    const found = [...this.#lines.find(kind, value)];
    return found
      .filter(([id, place]) => jobIdForm.test(id) && !this.#lines.isRemoved(id, place))
      .map(([id]) => id);
  }

  /** Ids of all jobs, newest first, without those of a file of ids; one that was removed otherwise than by mgw is among them. */
  async ids(without: Buffer): Promise<Ids> {
    await this.#read();
    return this.#lines.ids(without);
  }

  /** The highest id of those that were added lately, undefined where there is none. */
  async highest(): Promise<string | undefined> {
    await this.#read();
    return this.#lines.highest;
  }

  // The folder of the jobs changes before the index does, so that an index that is older has not seen all of them.
  async #read(): Promise<void> {
    while (this.#judging !== undefined) await this.#judging;
    if (this.#isOlder() || this.#isDamaged()) {
      this.#judging ??= this.#judge().finally(() => (this.#judging = undefined));
      await this.#judging;
    }
  }

  #isOlder(): boolean {
    this.#lines.refresh();
    return (this.#lines.seen?.mtimeMs ?? 0) < timeOf(this.#jobs.folder);
  }

  #isDamaged(): boolean {
    const { bytes, hasNul, seen } = this.#lines;
    if (seen !== undefined && seen === this.#whole) return false;
    const isDamaged = hasNul || bytes.length < Number(readBytes(this.#sizePath) ?? 0);
    if (!isDamaged) this.#whole = seen;
    return isDamaged;
  }

  async #judge(): Promise<void> {
    await Promise.allSettled(this.#changes);
    const folder = timeOf(this.#jobs.folder);
    const isOlder = this.#isOlder();
    const isDamaged = this.#isDamaged();
    if (!isOlder && !isDamaged) return;
    await this.#complete(isDamaged);
    this.#noteSize();
    const time = new Date(Math.ceil(folder) + 1);
    await utimes(this.#path, time, time);
    this.#lines.refresh();
  }

  // A size that was seen once: an index that is shorter has lost something.
  #noteSize(): void {
    try {
      writeOver(this.#sizePath, `${statSync(this.#path).size}`.padEnd(16));
    } catch {
      // Losing this loses only that check.
    }
  }

  async #complete(isDamaged: boolean): Promise<void> {
    const { bytes } = this.#lines;
    await createFile(this.#path, '').catch(ignoreExisting);
    const known = new Set(isDamaged ? [] : idsOf(bytes));
    const there = hashesWithIds(bytes);
    const completed = new Set<string>();
    let entries: IndexEntry[] = [];
    for (const id of await this.#jobs.ids()) {
      if (known.has(id)) continue;
      const all = await this.#jobs.entriesOf(id);
      entries.push(...all.filter((entry) => !hashesOf(entry).some((hash) => there.has(hash + id))));
      completed.add(id);
      if (entries.length < atOnce) continue;
      await this.add(entries);
      entries = [];
    }
    await this.add(entries);
    if (completed.size > 0) await this.#removeAgain(completed);
  }

  // What another process has removed since it was read would look lost: its removal has to come after what was added.
  async #removeAgain(completed: ReadonlySet<string>): Promise<void> {
    this.#lines.refresh();
    for (const id of removedIds(this.#lines.bytes))
      if (completed.has(id) && (await this.#jobs.entriesOf(id)).length === 0)
        await this.add([{ kind: 'removed', value: id, id }]);
  }
}

// 0 for what is not there: nothing is older.
function timeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}
