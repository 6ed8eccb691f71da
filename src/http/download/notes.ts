import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { link, open, rename, unlink, writeFile } from 'node:fs/promises';
import { systemCode } from '../../errors.ts';
import type { Owner } from '../../job.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_TRUNC } = constants;
// A link would lead elsewhere, and a FIFO be waited for. Windows has neither flag.
const careful = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

/** What is kept beside a `.part` file: whose it is, of what, and how much of it can be relied on. */
export interface Notes {
  version: 1;
  /** Hash of what the file is; addresses and their signatures are not kept. */
  identity: string;
  /** The process that writes the file; absent once it has let go. */
  owner?: Owner;
  /** What a continuation must match: see `strongValidator`. */
  validator?: string;
  /** The whole file's size, bytes, where it is known. */
  total?: number;
  /** So many bytes from the start are on the disk for sure. */
  durable: number;
}

/** Who claims, and how it tells whether another owner still runs. */
export interface Claimant {
  owner: Owner;
  isAlive: (owner: Owner) => boolean;
}

/** The hash under which notes remember what their file is. */
export function identityOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Notes that are this process's own. */
export interface Claim {
  notes: Notes;
  /** True where there were none before. */
  isNew: boolean;
}

/**
 * Makes the notes at `path` this process's own: of any number of processes one succeeds. Undefined where a
 * living process holds them.
 */
export async function claimNotes(path: string, fresh: Notes, claimant: Claimant): Promise<Claim | undefined> {
  const notes = { ...fresh, owner: claimant.owner };
  if (await createOnce(path, JSON.stringify(notes))) return { notes, isNew: true };
  try {
    return await takeOver(path, fresh, claimant);
  } catch (error) {
    // Their owner has just published and removed them: whoever looks again sees what stands there then.
    if (systemCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function takeOver(
  path: string,
  fresh: Notes,
  { owner, isAlive }: Claimant,
): Promise<Claim | undefined> {
  const found = await readNotes(path, fresh);
  if (found.owner !== undefined && !isSame(found.owner, owner) && isAlive(found.owner)) return undefined;
  // Only the holder of this mark may replace the notes of that owner, and looks again once it holds it.
  const mark = `${path}.${identityOf(JSON.stringify(found.owner ?? '')).slice(0, 8)}`;
  if (!(await createOnce(mark, ''))) return undefined;
  try {
    if (!isSame((await readNotes(path, fresh)).owner, found.owner)) return undefined;
    const notes = { ...found, owner };
    await writeNotes(path, notes);
    return { notes, isNew: false };
  } finally {
    await unlink(mark);
  }
}

/** Replaces notes in one step; only for their owner. */
export async function writeNotes(path: string, notes: Notes): Promise<void> {
  // One name, so that a process that dies here leaves nothing that its successor does not use up.
  const draft = `${path}.next`;
  const flag = O_WRONLY | O_CREAT | O_TRUNC | careful;
  try {
    await writeFile(draft, JSON.stringify(notes), { flag, mode: 0o600 });
    await rename(draft, path);
  } catch (error) {
    await unlink(draft).catch(() => undefined);
    throw error;
  }
}

// Notes that cannot be read, or are of another version or another file, say nothing but whose they are.
async function readNotes(path: string, fresh: Notes): Promise<Notes> {
  const notes = parsed(await readPlain(path));
  if (notes === undefined) return fresh;
  return notes.identity === fresh.identity ? notes : { ...fresh, owner: notes.owner };
}

async function readPlain(path: string): Promise<string> {
  const file = await open(path, O_RDONLY | careful);
  try {
    if (!(await file.stat()).isFile()) throw new Error('what is kept beside it is not a plain file');
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

function parsed(text: string): Notes | undefined {
  try {
    const notes = JSON.parse(text) as Partial<Notes> | null;
    const { version, durable, validator = '', total = 0, owner } = notes ?? {};
    const numbers = [durable, total].every((value) => Number.isSafeInteger(value) && Number(value) >= 0);
    const isOwned = owner === undefined || Number.isSafeInteger(owner.pid);
    return version === 1 && numbers && isOwned && typeof validator === 'string'
      ? (notes as Notes)
      : undefined;
  } catch {
    return undefined;
  }
}

function isSame(one: Owner | undefined, other: Owner | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

// Written aside and linked, so that nobody sees the file half-written.
async function createOnce(path: string, text: string): Promise<boolean> {
  const draft = draftOf(path);
  try {
    await writeFile(draft, text, { flag: 'wx', mode: 0o600 });
    await linkOrCreate(draft, path, text);
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw error;
  } finally {
    await unlink(draft).catch(() => undefined);
  }
}

async function linkOrCreate(draft: string, path: string, text: string): Promise<void> {
  try {
    await link(draft, path);
  } catch (error) {
    if (systemCode(error) === 'EEXIST') throw error;
    await writeFile(path, text, { flag: 'wx', mode: 0o600 });
  }
}

function draftOf(path: string): string {
  return `${path.replace(/\.[\da-f]{8}$/, '')}.${randomBytes(4).toString('hex')}`;
}
