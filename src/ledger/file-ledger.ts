import { readdir, stat } from 'node:fs/promises';
import { randomUUID } from 'node:crypto';
import { join, sep } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { messageOf, MgwError } from '../errors.ts';
import { checkOwnFolder, isFolder, makeOwnFolder } from '../files/make-folder.ts';
import type { Job } from '../job.ts';
import { removeFile } from '../files/remove-file.ts';
import { claimName } from './claim-name.ts';
import { createExclusively, readBytes } from './durable-file.ts';
import { entriesOf } from './entries-of.ts';
import { encodeEvent } from './event-log.ts';
import type { IndexEntry } from './index-lines.ts';
import { IndexLog } from './index-log.ts';
import { newJobId } from './job-id.ts';
import { JobRecords } from './job-records.ts';
import type { Ledger } from './ledger.ts';
import { currentOwner, lifeOf } from './owner.ts';
import { SuccessLog } from './success-log.ts';

/**
 * The ledger as a folder of plain files: `jobs/<id>.jsonl` is a job's event log, `claims/<name>` an exclusive
 * create, `index.log` what jobs are looked up by. No lock files (design 4).
 * @throws MgwError('local_io') where the folder cannot be made.
 */
export async function openFileLedger(stateDir: string, now: () => number): Promise<Ledger> {
  const folders = { jobs: join(stateDir, 'jobs'), claims: join(stateDir, 'claims') };
  const durable = await openFolders(stateDir, Object.values(folders));
  const records = new JobRecords(folders.jobs);
  const successes = new SuccessLog(join(stateDir, 'succeeded.log'));
  const read = (id: string): Job | undefined => {
    const job = records.read(id);
    if (job?.state === 'succeeded') successes.complete(id);
    return job;
  };
  const index = new IndexLog(join(stateDir, 'index.log'), {
    folder: folders.jobs,
    ids: () => Promise.resolve().then(() => records.ids().reverse()),
    entriesOf: (id) => Promise.resolve(indexedBy(id, read(id))),
  });
  return {
    newId: (time) => local(async () => newJobId(time, await index.highest()), stateDir),
    create: (id, events) =>
      local(
        () =>
          index.during(async () => {
            await durable();
            const text = events.map((event) => encodeEvent(event, now())).join('');
            await records.create(id, text, draftOf(records.pathOf(id)));
            await index.add(indexedBy(id, read(id)));
          }),
        stateDir,
      ),
    append: (id, event) =>
      local(async () => {
        // The index is a copy: on a full disk the event itself may still fit.
        if (event.type === 'accepted')
          await index.add([{ kind: 'handle', value: event.handle, id }]).catch(() => undefined);
        await records.append(id, encodeEvent(event, now()), event.type !== 'delivered');
        if (event.type === 'finished' && event.state === 'succeeded') successes.add(id);
      }, stateDir),
    read: (id) => local(() => read(id), stateDir),
    events: (id) => local(() => records.events(id), stateDir),
    version: (id) => local(() => records.version(id), stateDir),
    ids: () => local(() => records.ids(), stateDir),
    listed: (which) =>
      // An index that is older than the jobs may be in a folder that cannot be written to.
      local(() => index.ids(successes.lines(which)).catch(() => records.ids()), stateDir),
    remove: (id) =>
      local(async () => {
        await index.add([{ kind: 'removed', value: id, id }]);
        records.remove(id);
      }, stateDir),
    lookup: (kind, value) => local(() => index.lookup(kind, value), stateDir),
    ...claimsIn(folders.claims, stateDir, durable),
    lease: () => Promise.resolve({ owner: currentOwner(), assertHeld: () => undefined }),
    lifeOf: (owner) => Promise.resolve(lifeOf(owner)),
    close: () => Promise.resolve(),
  };
}

// Folders that are there are made durable when the first name is given in them: whoever made them may have died before
// that, and a command that gives none need not wait for it.
async function openFolders(stateDir: string, inner: string[]): Promise<() => Promise<void>> {
  const make = async (): Promise<void> => {
    await makeOwnFolder(stateDir, true);
    // Together, since one sync does for all.
    await Promise.all(inner.map((folder) => makeOwnFolder(folder, true)));
  };
  let made: Promise<void> | undefined;
  const durable = (): Promise<void> =>
    (made ??= local(make, stateDir).catch((error: unknown) => {
      made = undefined;
      throw error;
    }));
  const all = [stateDir, ...inner];
  if (!all.every(isFolder)) await durable();
  else await local(() => all.forEach((folder) => checkOwnFolder(folder, true)), stateDir);
  return durable;
}

// A job that came from elsewhere may go by nothing but its id; it is listed all the same.
function indexedBy(id: string, job: Job | undefined): IndexEntry[] {
  const entries = entriesOf(id, job);
  return entries.length === 0 && job?.record.fingerprint === '' ? [{ kind: 'id', value: id, id }] : entries;
}

async function local<T>(action: () => Promise<T> | T, stateDir: string): Promise<T> {
  try {
    return await action();
  } catch (error) {
    throw new MgwError('local_io', `The state folder ${stateDir} cannot be used: ${messageOf(error)}`, {
      retry: 'safe',
      cause: error,
    });
  }
}

function claimsIn(folder: string, stateDir: string, durable: () => Promise<void>): ClaimMethods {
  const pathOf = (name: string): string => `${folder}${sep}${claimName(name)}`;
  const claimed = (name: string): Promise<string | undefined> =>
    local(() => readClaim(pathOf(name)), stateDir);
  /** The second name that each tentative claim of this process goes by. */
  const drafts = new Map<string, string>();
  const removeDraft = (name: string): void => {
    const draft = drafts.get(name);
    drafts.delete(name);
    if (draft !== undefined) removeFile(draft);
  };
  return {
    claimed,
    claim: async (name, content, isTentative = false) => {
      const path = pathOf(name);
      const draft = draftOf(path);
      await durable();
      const won = await local(
        () => createExclusively(path, withChecksum(content), draft, isTentative),
        stateDir,
      );
      if (won && isTentative) drafts.set(name, draft);
      return won ? undefined : ((await claimed(name)) ?? '');
    },
    confirm: (name) => local(() => removeDraft(name), stateDir),
    isTentative: (name) => local(() => hasDraft(folder, claimName(name)), stateDir),
    release: (name) =>
      local(() => {
        removeFile(pathOf(name));
        removeDraft(name);
      }, stateDir),
  };
}

type ClaimMethods = Pick<Ledger, 'claim' | 'confirm' | 'isTentative' | 'claimed' | 'release'>;

function draftOf(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}

// A file by two names. A link that was made since, by whoever copies the folder so, has another name.
async function hasDraft(folder: string, file: string): Promise<boolean> {
  const claim = await stat(join(folder, file)).catch(() => undefined);
  if (claim === undefined || claim.nlink < 2) return false;
  for (const name of await readdir(folder)) {
    if (!name.startsWith(`${file}.`) || !name.endsWith('.tmp')) continue;
    const draft = await stat(join(folder, name)).catch(() => undefined);
    if (draft?.ino === claim.ino && draft.dev === claim.dev) return true;
  }
  return false;
}

// Without hard links a claim may be seen before its content: one that was made just now is given a moment.
async function readClaim(path: string): Promise<string | undefined> {
  for (let looks = 0; ; looks += 1) {
    const text = readBytes(path)?.toString('utf8');
    if (text !== '' || looks === 10) return text === undefined ? undefined : checked(text);
    const found = await stat(path).catch(() => undefined);
    if (found === undefined || Math.abs(Date.now() - found.mtimeMs) > 2000) return '';
    await delay(50);
  }
}

function withChecksum(line: string): string {
  return `${line} ${crc32(line).toString(16).padStart(8, '0')}\n`;
}

// A damaged claim is a claim all the same: it stands, and its content is empty.
function checked(text: string): string {
  const line = text.slice(0, -10);
  return withChecksum(line) === text ? line : '';
}
