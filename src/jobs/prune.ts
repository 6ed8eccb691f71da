import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import { isFinal, type Job } from '../job.ts';
import { timeOf } from '../ledger/job-id.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { forget, type BudgetsOf } from './forget.ts';

/**
 * Why a job is kept; the first reason counts. It is not old enough; it has not ended, or its record is damaged; a
 * process is working on it; the command that paid for it did not deliver it, and resumes; without it, speech would be
 * paid for again; its key permanently names it.
 */
export const keepReasons = ['newer', 'open', 'in_use', 'undelivered', 'speech', 'key'] as const;
export type KeepReason = (typeof keepReasons)[number];

/** The options of a prune. */
export interface PruneOptions {
  /** Ms since 1970: the last event of a job must be before it. */
  before: number;
  /** Also removes jobs with a key, whose command would then pay again. */
  keys: boolean;
  /** Removes nothing, and reports what would be removed. */
  dryRun: boolean;
}

/** The result of a prune. */
export interface PruneResult {
  /** Ids, the oldest first. */
  removed: string[];
  kept: Record<KeepReason, number>;
}

/**
 * Removes jobs that have ended from the ledger, but keeps each job whose command would then pay again.
 * @throws MgwError('local_io') if the ledger cannot be read or written.
 */
export async function prune(
  ledger: Ledger,
  options: PruneOptions,
  budgetsOf: BudgetsOf,
): Promise<PruneResult> {
  const kept = Object.fromEntries(keepReasons.map((reason) => [reason, 0])) as PruneResult['kept'];
  const removed: string[] = [];
  // The oldest first, so that a job goes before the later one that replaced it.
  for (const id of (await ledger.ids()).reverse()) {
    const job = timeOf(id) < options.before ? await ledger.read(id) : undefined;
    const reason = job === undefined ? 'newer' : await reasonToKeep(job, ledger, options);
    if (job === undefined || reason !== undefined) {
      kept[reason ?? 'newer'] += 1;
      continue;
    }
    const obstacle = options.dryRun ? undefined : await forget(ledger, job, false, budgetsOf);
    if (obstacle === undefined) removed.push(id);
    else kept[obstacle] += 1;
  }
  return { removed, kept };
}

async function reasonToKeep(
  job: Job,
  ledger: Ledger,
  { before, keys }: PruneOptions,
): Promise<KeepReason | undefined> {
  if (lastTimeOf(job) >= before) return 'newer';
  if (!isFinal(job.state) || job.record.damaged > 0) return 'open';
  if (job.record.runs.some(({ owner }) => job.record.lifeOf(owner) !== 'dead')) return 'in_use';
  if (job.state === 'succeeded' && isUndelivered(job)) return 'undelivered';
  if (job.protocol === 'tts' && (isStandingPiece(job) || (await blocksSpeech(job, ledger)))) return 'speech';
  return job.key !== undefined && !keys ? 'key' : undefined;
}

function lastTimeOf(job: Job): number {
  const times = [job.created_at, job.submitted_at, job.finished_at, job.fetched_at];
  return Math.max(...times.map((time) => (time === undefined ? 0 : Date.parse(time))));
}

// An imported handle has no command that could be repeated.
function isUndelivered({ record: { fingerprint, goals } }: Job): boolean {
  return (
    fingerprint !== '' && !(goals.length > 0 && goals.every(({ deliveredAt }) => deliveredAt !== undefined))
  );
}

// `tts --split` recognises a complete piece by its job; the piece's name contains the job's fingerprint.
function isStandingPiece({ files, record: { fingerprint } }: Job): boolean {
  const isPiece = (path: string): boolean => basename(path).endsWith(`-${fingerprint.slice(0, 16)}`);
  return files.some(({ path }) => isPiece(path) && existsSync(path));
}

// Speech that was billed and broke off blocks another payment, unless a later job replaced it.
async function blocksSpeech({ id, state, handle, record }: Job, ledger: Ledger): Promise<boolean> {
  if (state !== 'failed' || handle === undefined) return false;
  const others = await ledger.lookup('fingerprint', record.fingerprint);
  for (const other of others)
    if (other > id && (await ledger.read(other))?.handle !== undefined) return false;
  return true;
}
