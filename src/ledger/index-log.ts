import { createHash } from 'node:crypto';
import { stat, utimes } from 'node:fs/promises';
import { systemCode } from '../errors.ts';
import { appendFile, createFile, readBytes, replaceText } from './durable-file.ts';
import { jobIdForm } from './job-id.ts';

/** What jobs are looked up by; `removed` marks a job whose record was taken away on purpose. */
export type IndexKind = 'fingerprint' | 'handle' | 'key' | 'removed';

/** One line of the index: a job goes by a value. */
export interface IndexEntry {
  kind: IndexKind;
  value: string;
  id: string;
}

/** Where an index finds out what it has lost. */
export interface Indexed {
  /** The folder of the jobs' files. */
  folder: string;
  /** Ids of all jobs, in the order in which they were made. */
  ids: () => Promise<string[]>;
  /** All that one job goes by. */
  entriesOf: (id: string) => Promise<IndexEntry[]>;
}

const hashLength = 16;
const idLength = 18;
/** Bytes. */
const lately = 64 * 1024;
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

  constructor(path: string, jobs: Indexed) {
    this.#path = path;
    this.#sizePath = `${path}.size`;
    this.#jobs = jobs;
  }

  /** Adds entries, durable on return. */
  async add(entries: readonly IndexEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const text = entries.map(lineOf).join('');
    try {
      await appendFile(this.#path, text, '\n');
    } catch (error) {
      if (systemCode(error) !== 'ENOENT') throw error;
      await createFile(this.#path, '').catch(ignoreExisting);
      await appendFile(this.#path, text, '\n');
    }
    await this.#noteSize();
  }

  /** The jobs that go by a value and were not removed, newest first; a job's file may be gone all the same. */
  async lookup(kind: IndexKind, value: string): Promise<string[]> {
    const entry = { kind, value, id: '' };
    let bytes = await this.#read();
    if (!idsIn(bytes, entry).every((id) => jobIdForm.test(id))) {
      await this.#complete(bytes, true);
      bytes = await this.#read();
    }
    const removed = (id: string): boolean => idsIn(bytes, { kind: 'removed', value: id, id }).length > 0;
    return idsIn(bytes, entry).filter((id) => jobIdForm.test(id) && !removed(id));
  }

  /** The highest id of those that were added lately, undefined where there is none. */
  async highest(): Promise<string | undefined> {
    return idsOf((await this.#read()).subarray(-lately))
      .sort()
      .at(-1);
  }

  // The folder of the jobs changes before the index does, so that an index that is older has not seen all of them.
  async #read(): Promise<Buffer> {
    const [own, folder] = await Promise.all([timeOf(this.#path), timeOf(this.#jobs.folder)]);
    const bytes = readBytes(this.#path) ?? Buffer.alloc(0);
    const isDamaged = bytes.includes(0) || bytes.length < Number(readBytes(this.#sizePath) ?? 0);
    if (own >= folder && !isDamaged) return bytes;
    await this.#complete(bytes, isDamaged);
    await this.#noteSize();
    const time = new Date(Math.ceil(folder) + 1);
    await utimes(this.#path, time, time);
    return readBytes(this.#path) ?? bytes;
  }

  // A size that was seen once: an index that is shorter has lost something. Losing this loses only that check.
  async #noteSize(): Promise<void> {
    const { size } = await stat(this.#path);
    await replaceText(this.#sizePath, String(size)).catch(() => undefined);
  }

  async #complete(bytes: Buffer, isDamaged: boolean): Promise<void> {
    await createFile(this.#path, '').catch(ignoreExisting);
    const known = new Set(isDamaged ? [] : idsOf(bytes));
    const there = hashesWithIds(bytes);
    let entries: IndexEntry[] = [];
    for (const id of await this.#jobs.ids()) {
      if (known.has(id)) continue;
      const all = await this.#jobs.entriesOf(id);
      entries.push(...all.filter((entry) => !hashesOf(entry).some((hash) => there.has(hash + id))));
      if (entries.length < atOnce) continue;
      await this.add(entries);
      entries = [];
    }
    await this.add(entries);
  }
}

// Two hashes, so that no single damage makes a job unseen.
function hashesOf({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): [string, string] {
  const hash = createHash('sha256').update(`${kind}\n${value}`).digest('hex');
  return [hash.slice(0, hashLength), hash.slice(hashLength, 2 * hashLength)];
}

function lineOf(entry: IndexEntry): string {
  return `${hashesOf(entry).join('')} ${entry.id}\n`;
}

// Newest first; damage may have made an id none. With an id, only that job's lines count.
function idsIn(bytes: Buffer, entry: IndexEntry): string[] {
  const [first, second] = hashesOf(entry);
  const found = new Map<number, string>();
  for (const [hash, skip] of [
    [first, 2 * hashLength + 1],
    [second, hashLength + 1],
  ] as const) {
    for (let at = bytes.indexOf(hash); at >= 0; at = bytes.indexOf(hash, at + 1))
      found.set(at + skip, bytes.toString('latin1', at + skip, at + skip + idLength));
  }
  const places = [...found.keys()].sort((one, other) => other - one);
  const ids = places.map((place) => found.get(place) ?? '');
  return [...new Set(ids)].filter((id) => entry.id === '' || id === entry.id);
}

// Either hash of a line with its id: enough to find it.
function hashesWithIds(bytes: Buffer): Set<string> {
  const lines = bytes.toString('latin1').matchAll(/^(.{16})(.{16}) (job_[0-9a-z]{14})$/gm);
  return new Set(
    Array.from(lines, ([, first = '', second = '', id = '']) => [first + id, second + id]).flat(),
  );
}

function idsOf(bytes: Buffer): string[] {
  return bytes.toString('latin1').match(/job_[0-9a-z]{14}(?=\n)/g) ?? [];
}

// 0 for what is not there: nothing is older.
async function timeOf(path: string): Promise<number> {
  const found = await stat(path).catch(() => undefined);
  return found?.mtimeMs ?? 0;
}

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}
