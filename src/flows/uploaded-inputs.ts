import { extname } from 'node:path';
import { isFinal, type Job } from '../job.ts';
import { MgwError, usageError } from '../errors.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { storedNamesIn } from '../protocols/protocol.ts';
import type { UploadedInput, Uploads } from '../store/store.ts';
import type { Session } from './session.ts';

/** A file in the store, and the jobs in this ledger that use it. */
export interface InputInUse extends UploadedInput {
  /** The jobs' ids, oldest first. */
  jobs: string[];
}

/** Why a file is kept: it is too recent, an unfinished job uses it, or a queued row uses it. */
export type KeepReason = 'newer' | 'job' | 'queue';

/** The removed files, and the number of files kept for each reason. */
export interface PrunedInputs {
  removed: UploadedInput[];
  kept: Record<KeepReason, number>;
}

/** Options that select the files to prune. */
export interface PruneInputs {
  /** Only files uploaded before this time are removed, in ms since 1970. */
  before: number;
  /** Returns the names of the files that rows in a shared queue need. */
  queued: () => Promise<string[]>;
}

/**
 * Returns the files in the store, with the jobs that use them.
 * @throws MgwError('store', 'usage') if the files cannot be listed.
 */
export async function uploadedInputs(session: Session): Promise<InputInUse[]> {
  const files = await (await uploadsOf(session)).list();
  const { users } = await usageOf(await session.ledger());
  return files.map((file) => ({ ...file, jobs: users.get(file.name) ?? [] }));
}

/**
 * Finds the old files that no open job and no queued row needs. Removes nothing.
 * @throws MgwError('store', 'usage') if the files cannot be listed.
 */
export async function removableInputs(session: Session, options: PruneInputs): Promise<PrunedInputs> {
  return (await examine(session, options)).pruned;
}

async function examine(
  session: Session,
  { before, queued }: PruneInputs,
): Promise<{ pruned: PrunedInputs; usage: InputUsage }> {
  // List the files before reading the ledger, because a job is recorded before it relies on a file.
  const files = await (await uploadsOf(session)).list();
  const usage = await usageOf(await session.ledger());
  const queue = new Set(await queued());
  const pruned: PrunedInputs = { removed: [], kept: { newer: 0, job: 0, queue: 0 } };
  for (const file of files) {
    const isOld = Date.parse(file.uploaded_at) < before;
    const reason = !isOld
      ? 'newer'
      : usage.isNeeded(file.name)
        ? 'job'
        : queue.has(file.name)
          ? 'queue'
          : undefined;
    if (reason === undefined) pruned.removed.push(file);
    else pruned.kept[reason] += 1;
  }
  return { pruned, usage };
}

/**
 * Removes the files that {@link removableInputs} finds, except those that a job, new or sent again, has started to use
 * since.
 * @throws MgwError('store') if the store does not remove a file; files removed before the error are not restored.
 */
export async function removeInputs(session: Session, options: PruneInputs): Promise<PrunedInputs> {
  const [uploads, ledger] = await Promise.all([uploadsOf(session), session.ledger()]);
  const knownIds = new Set(await ledger.ids());
  const {
    pruned: { removed: files, kept },
    usage: { rejected },
  } = await examine(session, options);
  const removed: UploadedInput[] = [];
  for (const file of files) {
    const newIds = (await ledger.ids()).filter((id) => !knownIds.has(id));
    if ((await usageOf(ledger, [...rejected, ...newIds])).isNeeded(file.name)) {
      kept.job += 1;
      continue;
    }
    await uploads.remove(file.name);
    removed.push(file);
  }
  return { removed, kept };
}

async function uploadsOf(session: Session): Promise<Uploads> {
  const store = await session.store();
  if (store === undefined)
    throw usageError('No store is configured: mgw config set store s3://BUCKET/PREFIX', [
      'mgw',
      'config',
      'set',
      '--help',
    ]);
  if (store.uploads !== undefined) return store.uploads;
  throw new MgwError('config', 'store.command uploads files but cannot list or remove them.');
}

/** The jobs that use each file. `rejected`: the rejected jobs, which their commands may send again. */
interface InputUsage {
  users: Map<string, string[]>;
  rejected: string[];
  isNeeded: (name: string) => boolean;
}

async function usageOf(ledger: Ledger, ids?: readonly string[]): Promise<InputUsage> {
  const users = new Map<string, string[]>();
  const rejected: string[] = [];
  const needed = new Set<string>();
  // If a record lacks part of the body, its job may need any file. The stored name of a frame, or of a later copy of a
  // video, is never recorded. A job that uses a frame or a video may therefore need any file of that type.
  let isAnyNeeded = false;
  const neededTypes = new Set<string>();
  for (const id of [...(ids ?? (await ledger.ids()))].reverse()) {
    const job = await ledger.read(id);
    if (job === undefined) continue;
    const isUnfinished = mayStillSend(job);
    if (isUnfinished && (job.record.elided || job.record.damaged > 0)) isAnyNeeded = true;
    if (job.state === 'rejected') rejected.push(id);
    for (const name of storedNamesIn(job.request)) {
      const [file = ''] = name.split('#');
      if (isUnfinished && name !== file) neededTypes.add('.png');
      if (isUnfinished && name === file && file.endsWith('.mp4')) neededTypes.add('.mp4');
      if (isUnfinished) needed.add(file);
      users.set(file, [...(users.get(file) ?? []), id]);
    }
  }
  const mayBeNeeded = (name: string): boolean => neededTypes.has(extname(name)) && !users.has(name);
  return {
    users,
    rejected,
    isNeeded: (name) => isAnyNeeded || needed.has(name) || mayBeNeeded(name),
  };
}

// Whether a run may still need the job's files. Even a final job may be sent again while one of its runs is alive.
function mayStillSend({ state, record }: Job): boolean {
  return (
    !isFinal(state) || record.damaged > 0 || record.runs.some(({ owner }) => record.lifeOf(owner) !== 'dead')
  );
}
