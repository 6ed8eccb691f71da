import { lstatSync, readdirSync } from 'node:fs';
import { join, sep } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { messageOf, MgwError, systemCode, toMgwError } from '../errors.ts';
import { checkOwnFolder, isFolder, makeOwnFolder, syncFolder } from '../files/make-folder.ts';
import type { Job } from '../job.ts';
import { enrolAll } from './chain.ts';
import { encodeEvent } from './event-log.ts';
import { keepingFacts } from './kept-facts.ts';
import type { IndexEntry } from './index-lines.ts';
import { JobIndex } from './index-log.ts';
import { newJobId, names, claimFileName, firstName, isAttempt, type ClaimState } from './names.ts';
import { entriesOf, foldRecord, JobRecords, writeIndexed } from './job-records.ts';
import type { Ledger } from './ledger.ts';
import { currentOwner, lifeOf } from './owner.ts';
import { appendFile, createExclusively, createFile, readTail } from './durable-file.ts';

/**
 * Opens a ledger of plain files. `jobs/<id>.jsonl` is a job's event log. `claims/<name>` is a claim, an exclusively
 * created file. `index.log` and `handles.log` are indexes of the jobs. There are no lock files (design 4).
 * @throws MgwError('local_io') if the folder cannot be created.
 */
export async function openFileLedger(stateDir: string, now: () => number): Promise<Ledger> {
  const folders = { jobs: join(stateDir, 'jobs'), claims: join(stateDir, 'claims') };
  const local = <T>(action: () => Promise<T> | T): Promise<T> => inFolder(action, stateDir);
  const durable = await openFolders(stateDir, Object.values(folders), local);
  const records = new JobRecords(folders.jobs);
  const index = new JobIndex(stateDir, {
    folder: folders.jobs,
    ids: () => records.ids().reverse(),
    entriesOf: (id) => entriesOf(id, records.read(id)),
  });
  const claims = new FileClaims(folders.claims, async (raw) => {
    await enrolAll(raw, jobsIn(records), currentOwner());
  });
  return {
    ...jobMethods({ records, index, claims, durable, local, now }),
    newId: (time) => local(() => newJobId(time, index.highest())),
    lookup: (kind, value) => local(() => index.find(kind, value)),
    listed: ({ excludeSucceeded } = { excludeSucceeded: false }) =>
      // An incomplete index cannot be completed in a read-only folder, so read the records instead.
      local(() => index.ids(excludeSucceeded).catch(() => records.ids())),
    claim: (name, content) =>
      local(async () => {
        await durable();
        // The process that created the job may have died before the record's file name was durable. An attempt without
        // a record would look like a lost job.
        if (isAttempt(name)) await syncFolder(folders.jobs);
        return claims.claim(name, content);
      }),
    claimed: (name) => local(() => claims.claimed(name)),
    firstNames: () => local(() => claims.firstNames()),
    confirm: (name) => local(() => claims.confirm(name)),
    isConfirmed: (name) => local(() => claims.isConfirmed(name)),
    lease: () => Promise.resolve({ owner: currentOwner(), assertLease: () => undefined }),
    lifeOf: (owner) => Promise.resolve(lifeOf(owner)),
    uncertainLease: () => Promise.resolve(undefined),
    close: async () => {},
  };
}

type Local = <T>(action: () => Promise<T> | T) => Promise<T>;

interface Parts {
  records: JobRecords;
  index: JobIndex;
  claims: FileClaims;
  durable: () => Promise<void>;
  local: Local;
  now: () => number;
}

type JobMethods = Pick<
  Ledger,
  'create' | 'append' | 'flush' | 'read' | 'events' | 'version' | 'ids' | 'remove' | 'forbid' | 'claimState'
>;

function jobMethods({ records, index, claims, durable, local, now }: Parts): JobMethods {
  // Ignores errors, because the index is only a copy, and the event itself may still fit on a nearly full disk.
  const note = (entry: IndexEntry, isDurable: boolean): Promise<() => boolean> =>
    index.add([entry], isDurable).catch(() => () => true);
  // Jobs that this process created and has not sent. The index contains them.
  const unsentJobs = new Set<string>();
  const noteRemoved = (id: string): Promise<unknown> => note({ kind: 'removed', value: '', id }, false);
  return {
    create: (id, events, restores) =>
      local(async () => {
        await durable();
        if (records.isRemoved(id) ? restores !== true : records.version(id) !== undefined) return false;
        const text = events.map((event) => encodeEvent(event, now())).join('');
        const entries = entriesOf(id, foldRecord(id, text));
        const isCreated = await writeIndexed(
          () => index.add(entries),
          () => records.create(id, text, restores),
        );
        if (isCreated) unsentJobs.add(id);
        return isCreated;
      }),
    ...keepingFacts(
      (id, event) =>
        local(async () => {
          if (event.type === 'sending' && !unsentJobs.delete(id)) await index.restore(id);
          const write = (): Promise<void> =>
            records.append(id, encodeEvent(event, now()), event.type !== 'delivered');
          if (event.type === 'accepted')
            await writeIndexed(() => note({ kind: 'handle', value: event.handle, id }, true), write);
          else await write();
          if (event.type === 'finished' && event.state === 'succeeded')
            await note({ kind: 'succeeded', value: '', id }, false);
        }),
      (id) => local(() => records.isRemoved(id)),
    ),
    read: (id) => local(() => records.read(id)),
    events: (id) => local(() => records.events(id)),
    version: (id) => local(() => records.version(id)),
    ids: () =>
      local(async () => {
        const removed = await index.removed().catch(() => new Set<string>());
        return records.ids().filter((id) => !removed.has(id));
      }),
    remove: (id) =>
      local(async () => {
        await records.remove(id);
        await noteRemoved(id);
      }),
    forbid: (id) =>
      local(async () => {
        const isForbidden = await records.forbid(id);
        if (isForbidden) await noteRemoved(id);
        return isForbidden;
      }),
    claimState: (id) => local(() => claimState(id, { records, index, claims })),
  };
}

async function claimState(
  id: string,
  { records, index, claims }: Pick<Parts, 'records' | 'index' | 'claims'>,
): Promise<ClaimState> {
  const recordedState = (): ClaimState | undefined => {
    if (records.isRemoved(id)) return 'removed';
    return records.version(id) === undefined ? undefined : 'exists';
  };
  const recorded = recordedState();
  if (recorded !== undefined) return recorded;
  const isSent = (await claims.claimed(names.attempt(id, 1))) !== undefined;
  if (!isSent && !(await index.isAccepted(id))) return 'not-created';
  // Another process may have created the record and sent the job since this function's first check.
  return recordedState() ?? 'lost';
}

function* jobsIn(records: JobRecords): Iterable<Job> {
  for (const id of records.ids().reverse()) {
    const job = records.read(id);
    if (job !== undefined) yield job;
  }
}

// Returns a function that makes the folders durable, to be called before the first claim. This is needed even for
// existing folders, because the process that created them may have died before its sync. A command that claims nothing
// does not wait for the sync.
async function openFolders(stateDir: string, inner: string[], run: Local): Promise<() => Promise<void>> {
  const make = async (): Promise<void> => {
    await makeOwnFolder(stateDir, true);
    // Run concurrently, because one sync then covers all folders.
    await Promise.all(inner.map((folder) => makeOwnFolder(folder, true)));
  };
  let creation: Promise<void> | undefined;
  const durable = (): Promise<void> =>
    (creation ??= run(make).catch((error: unknown) => {
      creation = undefined;
      throw error;
    }));
  const folders = [stateDir, ...inner];
  if (!folders.every(isFolder)) await durable();
  else await run(() => folders.forEach((folder) => checkOwnFolder(folder, true)));
  return durable;
}

async function inFolder<T>(action: () => Promise<T> | T, stateDir: string): Promise<T> {
  try {
    return await action();
  } catch (error) {
    throw new MgwError('local_io', `The state folder ${stateDir} cannot be used: ${messageOf(error)}`, {
      retry: 'safe',
      next: toMgwError(error).next,
      cause: error,
    });
  }
}

/**
 * Stores claims as exclusively created files, each with its content and a checksum. A second line confirms that the
 * claimed work has begun. No claim is ever removed.
 */
class FileClaims {
  readonly #folder: string;
  readonly #rebuild: (raw: Pick<FileClaims, 'claim' | 'claimed'>) => Promise<void>;
  #completing: Promise<void> | undefined;

  /**
   * @param rebuild claims the names of all existing jobs if the claims folder is missing or incomplete
   */
  constructor(folder: string, rebuild: (raw: Pick<FileClaims, 'claim' | 'claimed'>) => Promise<void>) {
    this.#folder = folder;
    this.#rebuild = rebuild;
  }

  /** Claims a name. See {@link Ledger.claim}. */
  async claim(name: string, content: string): Promise<string | undefined> {
    await this.#complete();
    return this.#claim(name, content);
  }

  /** Returns a claim's content: '' if the claim is damaged, undefined if the name is free. */
  async claimed(name: string): Promise<string | undefined> {
    await this.#complete();
    return this.#contentOf(name);
  }

  /** See {@link Ledger.firstNames}. */
  async firstNames(): Promise<string[]> {
    await this.#complete();
    return readdirSync(this.#folder).flatMap((fileName) => firstName(fileName) ?? []);
  }

  // A marker file shows that no claim is missing. Any number of processes may rebuild the claims concurrently.
  async #complete(): Promise<void> {
    const marker = `${this.#folder}${sep}.complete`;
    if (lstatSync(marker, { throwIfNoEntry: false }) !== undefined) return;
    this.#completing ??= (async () => {
      const raw = { claim: this.#reclaim.bind(this), claimed: this.#contentOf.bind(this) };
      await this.#rebuild(raw);
      await createFile(marker, '').catch(ignoreExisting);
    })().finally(() => (this.#completing = undefined));
    await this.#completing;
  }

  async #claim(name: string, content: string): Promise<string | undefined> {
    const isCreated = await createExclusively(this.#pathOf(name), withChecksum(content));
    return isCreated ? undefined : ((await this.#contentOf(name)) ?? '');
  }

  // Claims a name without a sync, because 100,000 syncs would take minutes. Creating the marker file makes the names
  // durable. If a power failure leaves a claim without its content, the content is derived from the jobs.
  async #reclaim(name: string, content: string): Promise<string | undefined> {
    const creation = createFile(this.#pathOf(name), withChecksum(content), false);
    const isCreated = await creation.then(() => true, ignoreExisting);
    return isCreated === true ? undefined : ((await this.#contentOf(name)) ?? '');
  }

  async #contentOf(name: string): Promise<string | undefined> {
    const text = await this.#textOf(name);
    if (text === undefined) return undefined;
    const end = text.indexOf('\n') + 1;
    const content = text.slice(0, Math.max(0, end - 10));
    return withChecksum(content) === text.slice(0, end) ? content : '';
  }

  /** Records that the work under a claim has begun. A machine crash may lose this record. */
  async confirm(name: string): Promise<void> {
    await appendFile(this.#pathOf(name), 'confirmed\n', { isDurable: false });
  }

  /** Whether a claim is confirmed, or is damaged and may have been confirmed. */
  async isConfirmed(name: string): Promise<boolean> {
    const text = await this.#textOf(name);
    return text !== undefined && text.indexOf('\n') !== text.length - 1;
  }

  #pathOf(name: string): string {
    return `${this.#folder}${sep}${claimFileName(name)}`;
  }

  // Without hard links, a claim may be visible before its content, so an empty claim less than 2 s old is read again.
  async #textOf(name: string): Promise<string | undefined> {
    const path = this.#pathOf(name);
    for (;;) {
      const record = readTail(path, () => 0);
      if (record === undefined) return undefined;
      const text = record.tail.toString('utf8');
      const isOld = Math.abs(Date.now() - record.stat.mtimeMs) > 2000;
      if (text !== '' || isOld) return text;
      await delay(50);
    }
  }
}

function ignoreExisting(error: unknown): void {
  if (systemCode(error) !== 'EEXIST') throw error;
}

function withChecksum(line: string): string {
  return `${line} ${crc32(line).toString(16).padStart(8, '0')}\n`;
}
