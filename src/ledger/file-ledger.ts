import { lstat, readdir, unlink } from 'node:fs/promises';
import { createHash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { lostFingerprint, type Job, type JobEvent, type JobKind, type RecordedEvent } from '../job.ts';
import { appendFile, createExclusively, createFile, makeDurableFolder, readText } from './durable-file.ts';
import { decodeEvents, encodeEvent, tornEnd } from './event-log.ts';
import { foldJob } from './fold.ts';
import { jobIdForm, timeOf } from './job-id.ts';
import type { IndexKind, Ledger } from './ledger.ts';

interface Folders {
  jobs: string;
  claims: string;
  index: string;
}

/**
 * The ledger as a folder of plain files: `jobs/<id>.jsonl` is a job's event log, `claims/<name>` an exclusive
 * create, `index/<kind>-<hash>/<id>` an empty file. No lock files (design 4).
 * @throws MgwError('local_io') where the folder cannot be made.
 */
export async function openFileLedger(stateDir: string, now: () => number): Promise<Ledger> {
  const folders = {
    jobs: join(stateDir, 'jobs'),
    claims: join(stateDir, 'claims'),
    index: join(stateDir, 'index'),
  };
  for (const folder of Object.values(folders)) await local(() => makeDurableFolder(folder), stateDir);
  const jobPath = (id: string): string => join(folders.jobs, `${id}.jsonl`);
  const lines = (events: readonly JobEvent[]): string =>
    events.map((event) => encodeEvent(event, now())).join('');
  return {
    create: (id, events) => local(() => createJob(jobPath(id), lines(events)), stateDir),
    append: (id, event) => local(() => appendFile(jobPath(id), lines([event]), tornEnd), stateDir),
    read: (id) =>
      local(() => Promise.resolve(jobIdForm.test(id) ? readJob(id, jobPath(id)) : undefined), stateDir),
    ids: () => local(() => listIds(folders.jobs), stateDir),
    remove: (id) => local(() => unlink(jobPath(id)), stateDir),
    ...claimsIn(folders.claims, stateDir),
    ...indexIn(folders, stateDir),
  };
}

// Complete or not there at all: a process that dies here leaves no record without a beginning.
async function createJob(path: string, text: string): Promise<void> {
  if (!(await createExclusively(path, text, randomUUID()))) throw new Error(`${path} exists`);
}

async function local<T>(action: () => Promise<T>, stateDir: string): Promise<T> {
  try {
    return await action();
  } catch (error) {
    throw new MgwError('local_io', `The state folder ${stateDir} cannot be used: ${messageOf(error)}`, {
      retry: 'safe',
      cause: error,
    });
  }
}

// What says nothing about the file: this process has too much open.
const shortages = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN']);

function readJob(id: string, path: string): Job | undefined {
  let text: string | undefined;
  try {
    text = readText(path);
  } catch (error) {
    // A link, a folder, a file without permission: a record that cannot be read is not "not sent".
    if (shortages.has(systemCode(error) ?? '')) throw error;
    text = '';
  }
  if (text === undefined) return undefined;
  const lines = decodeEvents(text);
  return foldJob(id, lines) ?? damagedJob(id, text, lines);
}

// What is left of a record that has lost its beginning: enough to name it, to block a second submission, and to
// follow its handle where that can be read.
function damagedJob(id: string, text: string, lines: readonly (RecordedEvent | undefined)[]): Job {
  const protocol = /"protocol":"(a|b|c|tts)"/.exec(text)?.[1] ?? 'c';
  const prepared = {
    type: 'prepared' as const,
    at: new Date(timeOf(id)).toISOString(),
    protocol: protocol as JobKind,
    base_url: '',
    fingerprint: lostFingerprint,
    account: '',
  };
  const job = foldJob(id, [prepared, undefined, ...lines]);
  if (job === undefined) throw new MgwError('internal', 'a job without a beginning');
  job.error ??= { code: 'local_io', message: 'The record of this job is damaged.' };
  return job;
}

async function listIds(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  const ids = names.map((name) => name.slice(0, -'.jsonl'.length)).filter((id) => jobIdForm.test(id));
  return ids.sort().reverse();
}

function claimsIn(folder: string, stateDir: string): Pick<Ledger, 'claim' | 'claimed' | 'release'> {
  const pathOf = (name: string): string => join(folder, claimFile(name));
  const claimed = (name: string): Promise<string | undefined> =>
    local(() => {
      const text = readText(pathOf(name));
      return Promise.resolve(text === undefined ? undefined : checked(text));
    }, stateDir);
  return {
    claimed,
    claim: async (name, content) => {
      const won = await local(
        () => createExclusively(pathOf(name), withChecksum(content), randomUUID()),
        stateDir,
      );
      return won ? undefined : ((await claimed(name)) ?? '');
    },
    release: (name) => local(() => unlink(pathOf(name)).catch(ignoreMissing), stateDir),
  };
}

// A file's name has 255 bytes at most, and a draft's is longer by 41.
function claimFile(name: string): string {
  const encoded = encodeURIComponent(name);
  return encoded.length <= 200 ? encoded : `long-${createHash('sha256').update(name).digest('hex')}`;
}

function ignoreMissing(error: unknown): void {
  if (systemCode(error) !== 'ENOENT') throw error;
}

function withChecksum(line: string): string {
  return `${line} ${crc32(line).toString(16).padStart(8, '0')}\n`;
}

// A damaged claim is a claim all the same: it stands, and its content is empty.
function checked(text: string): string {
  const line = text.slice(0, -10);
  return withChecksum(line) === text ? line : '';
}

// A folder for each value with an empty file for each job: there is no content that could be cut or torn.
function indexIn(folders: Folders, stateDir: string): Pick<Ledger, 'index' | 'lookup'> {
  const pathOf = (kind: IndexKind, value: string): string =>
    join(folders.index, `${kind}-${createHash('sha256').update(value).digest('hex').slice(0, 40)}`);
  return {
    index: (kind, value, id) => local(() => addEntry(pathOf(kind, value), id), stateDir),
    lookup: (kind, value) =>
      local(async () => (await entriesOf(pathOf(kind, value))) ?? (await listIds(folders.jobs)), stateDir),
  };
}

async function addEntry(folder: string, id: string): Promise<void> {
  await makeDurableFolder(folder);
  await createFile(join(folder, id), '').catch((error: unknown) => {
    if (systemCode(error) !== 'EEXIST') throw error;
  });
}

// Undefined for anything that is not a folder of job ids: the index is then no proof of anything.
async function entriesOf(folder: string): Promise<string[] | undefined> {
  try {
    if (!(await lstat(folder)).isDirectory()) return undefined;
    const ids = await readdir(folder);
    return ids.length > 0 && ids.every((id) => jobIdForm.test(id)) ? ids.sort().reverse() : undefined;
  } catch (error) {
    return systemCode(error) === 'ENOENT' ? [] : undefined;
  }
}
