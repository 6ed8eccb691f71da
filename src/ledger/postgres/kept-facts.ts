import { createHash, randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { makeOwnFolder } from '../../files/make-folder.ts';
import { createFile } from '../durable-file.ts';

/** An event that could not be written where it belongs. */
export interface KeptFact {
  job: string;
  /** Makes it one event, however often it is sent. */
  uid: string;
  line: string;
}

/**
 * What is known and could not be written, since the database was gone: a file for each event, in the local state folder,
 * until the next process of this machine that uses the same ledger writes it.
 */
export class KeptFacts {
  readonly folder: string;
  #count = 0;

  /** @param ledger what tells the ledger from others */
  constructor(stateDir: string, ledger: string) {
    const name = createHash('sha256').update(ledger).digest('hex').slice(0, 16);
    this.folder = join(stateDir, 'unwritten', name);
  }

  /** Keeps an event, durably. @throws what the file system throws. */
  async keep(fact: KeptFact): Promise<void> {
    await makeOwnFolder(this.folder, true);
    this.#count += 1;
    const order = `${String(Date.now()).padStart(14, '0')}-${String(this.#count).padStart(6, '0')}`;
    await createFile(join(this.folder, `${order}-${randomUUID().slice(0, 8)}.json`), JSON.stringify(fact));
  }

  /** The files that are kept, the oldest first. */
  files(): string[] {
    try {
      return readdirSync(this.folder)
        .filter((name) => name.endsWith('.json'))
        .sort();
    } catch {
      return [];
    }
  }

  /** Hands each kept event to `write`, and removes it once it is written. @throws what `write` throws. */
  async flush(write: (fact: KeptFact) => Promise<void>): Promise<void> {
    for (const name of this.files()) {
      const path = join(this.folder, name);
      const fact = factIn(path);
      // Torn by a crash, or taken by another process meanwhile: the writer was not told that it was kept.
      if (fact === undefined) continue;
      await write(fact);
      await unlink(path).catch(() => undefined);
    }
  }
}

/** The number of events in a state folder that wait to be written to any shared ledger. */
export function countUnwritten(stateDir: string): number {
  try {
    const names = readdirSync(join(stateDir, 'unwritten'), { recursive: true, encoding: 'utf8' });
    return names.filter((name) => name.endsWith('.json')).length;
  } catch {
    return 0;
  }
}

function factIn(path: string): KeptFact | undefined {
  try {
    const { job, uid, line } = JSON.parse(readFileSync(path, 'utf8')) as Partial<KeptFact>;
    return job !== undefined && uid !== undefined && line !== undefined ? { job, uid, line } : undefined;
  } catch {
    return undefined;
  }
}
