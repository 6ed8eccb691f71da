import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink, type FileHandle } from 'node:fs/promises';
import type { Clock } from '../../clock.ts';
import { systemCode } from '../../errors.ts';
import { localError } from '../local-error.ts';
import { sidecarOf } from '../publish.ts';
import { claimNotes, identityOf, type Claimant, type Notes } from './notes.ts';
import { PartFile, type PartOptions } from './part-file.ts';

const { O_RDWR, O_CREAT, O_EXCL } = constants;
// Neither exists on Windows.
const careful = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);

/**
 * Opens the `.part` file at `path`, with what an earlier run left of the same `identity`. Where another download
 * that is alive holds that name, or a file that is not mgw's has it, the part gets a longer name of its own and
 * is not continued by others: two processes that fetch one job never write one file.
 * @throws MgwError('local_io')
 */
export async function openPart(
  path: string,
  identity: string,
  claimant: Claimant,
  clock: Clock,
): Promise<PartFile> {
  try {
    return (await openShared(path, identity, claimant, clock)) ?? (await openOwn(path, clock));
  } catch (error) {
    throw localError(error, path, 'yes');
  }
}

// Parts that this very process writes or is about to publish: the notes cannot tell two of its downloads apart.
const inUse = new Set<string>();

async function openShared(
  path: string,
  identity: string,
  claimant: Claimant,
  clock: Clock,
): Promise<PartFile | undefined> {
  if (inUse.has(path)) return undefined;
  inUse.add(path);
  const letGo = (): void => void inUse.delete(path);
  try {
    const part = await claimed(path, identity, claimant, { clock, letGo });
    if (part === undefined) letGo();
    return part;
  } catch (error) {
    letGo();
    throw error;
  }
}

async function claimed(
  path: string,
  identity: string,
  claimant: Claimant,
  options: PartOptions,
): Promise<PartFile | undefined> {
  const fresh: Notes = { version: 1, identity: identityOf(identity), durable: 0 };
  const claim = await claimNotes(sidecarOf(path), fresh, claimant);
  if (claim === undefined) return undefined;
  try {
    return await PartFile.of(path, await openFile(path, claim.isNew), claim.notes, options);
  } catch (error) {
    if (!claim.isNew) throw error;
    await unlink(sidecarOf(path));
    // A part without notes is not mgw's.
    if (systemCode(error) === 'EEXIST') return undefined;
    throw error;
  }
}

async function openOwn(path: string, clock: Clock): Promise<PartFile> {
  const own = `${path}.${randomBytes(4).toString('hex')}`;
  return PartFile.of(own, await openFile(own, true), undefined, { clock, letGo: () => undefined });
}

async function openFile(path: string, isNew: boolean): Promise<FileHandle> {
  const file = await open(path, O_RDWR | O_CREAT | careful | (isNew ? O_EXCL : 0), 0o666);
  const status = await file.stat();
  if (status.isFile() && status.nlink <= 1) return file;
  await file.close();
  if (!status.isFile()) throw new Error('it is not a plain file');
  // A crash came between publishing this file and removing its first name: writing here would change the output.
  await unlink(path);
  return openFile(path, true);
}
