import { createHash, randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { makeOwnFolder } from '../files/make-folder.ts';
import type { JobEvent } from '../job.ts';
import { createFile } from './durable-file.ts';
import type { Ledger } from './ledger.ts';

/** Events that no later event can invalidate, so they may be recorded late. */
const factTypes = new Set<JobEvent['type']>([
  'reply',
  'accepted',
  'rejected',
  'unavailable',
  'unknown',
  'finished',
  'file',
  'delivered',
  'detached',
]);

/**
 * Whether an event that cannot be recorded is kept, to be recorded later. A user's decision is not kept, because the
 * user sees the error and can decide again.
 */
export function isFact({ type }: JobEvent): boolean {
  return factTypes.has(type);
}

/** Returns an `append` that keeps facts in memory if `write` cannot record them, and a `flush` that records them. */
export function keepingFacts(
  write: Ledger['append'],
  isRemoved: (id: string) => Promise<boolean>,
): Pick<Ledger, 'append' | 'flush'> {
  const unwritten = new Set<[id: string, fact: JobEvent]>();
  const tryToWrite = async (id: string, event: JobEvent): Promise<void> => {
    try {
      await write(id, event);
    } catch (error) {
      if (isFact(event) && !(await isRemoved(id).catch(() => false))) unwritten.add([id, event]);
      throw error;
    }
  };
  const flush = async (): Promise<void> => {
    for (const fact of [...unwritten])
      if (unwritten.delete(fact)) await tryToWrite(...fact).catch(() => undefined);
  };
  return {
    append: async (id, event) => {
      await flush();
      await tryToWrite(id, event);
    },
    flush,
  };
}

/** An event that could not be written to the ledger. */
export interface UnwrittenEvent {
  job: string;
  /** Identifies the event, so that it is recorded once even if it is sent several times. */
  uid: string;
  line: string;
}

/**
 * Facts that could not be written because the database was unreachable. Each fact is stored as a file in the local
 * state folder. The next process on this machine that uses the same ledger writes the facts to the database.
 */
export class UnwrittenEvents {
  readonly folder: string;
  #count = 0;
  /** Events that could not be saved to a file either. */
  readonly #unsaved = new Set<UnwrittenEvent>();

  /**
   * @param ledger identifies the ledger
   */
  constructor(stateDir: string, ledger: string) {
    const name = createHash('sha256').update(ledger).digest('hex').slice(0, 16);
    this.folder = join(stateDir, 'unwritten', name);
  }

  /**
   * Saves an event to a file. The file is durable when the call returns.
   * @throws file system errors; the event is then kept in memory.
   */
  async keep(fact: UnwrittenEvent): Promise<void> {
    this.#unsaved.add(fact);
    await makeOwnFolder(this.folder, true);
    this.#count += 1;
    const order = `${String(Date.now()).padStart(14, '0')}-${String(this.#count).padStart(6, '0')}`;
    await createFile(join(this.folder, `${order}-${randomUUID().slice(0, 8)}.json`), JSON.stringify(fact));
    this.#unsaved.delete(fact);
  }

  /** Returns the names of the saved files, oldest first. */
  files(): string[] {
    try {
      return readdirSync(this.folder)
        .filter((name) => name.endsWith('.json'))
        .sort();
    } catch {
      return [];
    }
  }

  /** Passes each saved event to `write`, then deletes it. @throws the errors of `write` */
  async flush(write: (fact: UnwrittenEvent) => Promise<void>): Promise<void> {
    for (const name of this.files()) {
      const path = join(this.folder, name);
      const fact = factIn(path);
      // Either a crash tore the file, so its writer never got a confirmation, or another process wrote the event and
      // removed the file.
      if (fact === undefined) continue;
      await write(fact);
      await unlink(path).catch(() => undefined);
    }
    for (const fact of this.#unsaved) {
      await write(fact);
      this.#unsaved.delete(fact);
    }
  }
}

/** Returns the number of events in a state folder that are waiting to be written to a shared ledger. */
export function countUnwritten(stateDir: string): number {
  try {
    const names = readdirSync(join(stateDir, 'unwritten'), { recursive: true, encoding: 'utf8' });
    return names.filter((name) => name.endsWith('.json')).length;
  } catch {
    return 0;
  }
}

function factIn(path: string): UnwrittenEvent | undefined {
  try {
    const { job, uid, line } = JSON.parse(readFileSync(path, 'utf8')) as Partial<UnwrittenEvent>;
    return job !== undefined && uid !== undefined && line !== undefined ? { job, uid, line } : undefined;
  } catch {
    return undefined;
  }
}
