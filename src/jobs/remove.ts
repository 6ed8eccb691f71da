import { randomUUID } from 'node:crypto';
import type { Budget } from '../budget/budget.ts';
import { exitCodes } from '../errors.ts';
import { isFinal, type Job, type JobEvent } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import {
  abandonClaim,
  attemptClaim,
  eventOfEndedProcess,
  nextAttempt,
  settleRemoved,
} from './charge-outcome.ts';
import { existsSync } from 'node:fs';
import { timeOf } from '../ledger/names.ts';
import { isPiece } from './output.ts';

/** Why a job is not removed: a process is working on it, or it has not ended and may have been paid for. */
export type Obstacle = 'in_use' | 'open';

/** Opens the budgets in which a job has an open reservation. */
export type BudgetsOf = (jobId: string) => Promise<readonly Budget[]>;

/**
 * Settles a job's reservations and removes the job from the ledger. Its `--key` becomes free; saved files are kept. If
 * the job could still be sent, claims its next attempt first, so that a process about to send the job finds it removed.
 * If the job was sent, a run that is about to begin waits until the job is removed or kept.
 * @param force whether to remove the job despite an obstacle
 * @returns the obstacle; undefined if the job was removed
 * @throws MgwError('local_io') if the removal cannot be recorded.
 */
export async function removeJob(
  ledger: Ledger,
  original: Job,
  force: boolean,
  budgetsOf: BudgetsOf,
): Promise<Obstacle | undefined> {
  let closedJob: Job | undefined;
  for (let job: Job | undefined = original; job !== undefined; job = await ledger.read(job.id)) {
    if (!force) {
      const obstacle = await obstacleOf(ledger, job);
      if (obstacle !== undefined) return obstacle;
    }
    const outcome = await keepFromSending(ledger, job, force);
    if (outcome === 'claimed') return 'in_use';
    if (outcome === 'closed') closedJob = job;
    if (outcome === 'kept' || outcome === 'closed') break;
  }
  let run: string | undefined;
  const undo = async (): Promise<void> => {
    if (closedJob !== undefined) await abandonAttempt(ledger, closedJob);
    if (run !== undefined)
      await ledger.append(original.id, { type: 'detached', run, exit_code: exitCodes.usage });
  };
  try {
    if (!force && closedJob === undefined) run = await beginRemovalRun(ledger, original.id);
    const latest = force ? undefined : await ledger.read(original.id);
    const obstacle = latest && (await obstacleOf(ledger, latest));
    if (obstacle !== undefined) {
      await undo();
      return obstacle;
    }
    await settleRemoved(ledger, await budgetsOf(original.id), original.id, closedJob !== undefined);
    await ledger.remove(original.id);
    return undefined;
  } catch (error) {
    // Report the first error, not a later one from `undo`.
    await undo().catch(() => undefined);
    throw error;
  }
}

// Records the removal as a run. Runs that begin later wait for the removal, and its last check of the job finds runs
// that began earlier.
async function beginRemovalRun(ledger: Ledger, id: string): Promise<string> {
  const run = randomUUID().slice(0, 8);
  const { owner } = await ledger.lease();
  await recordBegan(ledger, id, { type: 'began', run, owner, command: 'rm', ask: 'accept' });
  return run;
}

/**
 * Records that a run of a job began, unless the job was removed.
 * @throws MgwError('local_io') if the run cannot be recorded.
 */
export async function recordBegan(
  ledger: Ledger,
  id: string,
  began: JobEvent & { type: 'began' },
): Promise<void> {
  await ledger.append(id, began).catch(async (error: unknown) => {
    if ((await ledger.claimState(id)) !== 'removed') throw error;
  });
}

// Records that the claimed attempt was abandoned. Otherwise, a run that began in the meantime would wait until this
// process ends, and two such processes would wait for each other.
async function abandonAttempt(ledger: Ledger, job: Job): Promise<void> {
  abandonClaim(attemptClaim(job));
  const message = 'Not sent, because a process was about to remove the job';
  const attempt = job.record.attempts + 1;
  const error = { code: 'unreachable', message } as const;
  await ledger.append(job.id, { type: 'unavailable', attempt, error });
}

/** Returns the obstacle to removing a job; undefined if there is none. */
export async function obstacleOf(ledger: Ledger, { state, record }: Job): Promise<Obstacle | undefined> {
  for (const { command, owner } of record.runs)
    if (command !== 'rm' && (await ledger.lifeOf(owner)) !== 'dead') return 'in_use';
  const isUnsent = state === 'prepared' && !record.hasEarlierDoubt;
  return (isFinal(state) || isUnsent) && record.damaged === 0 ? undefined : 'open';
}

// Prevents another process from sending a job. `kept`: the job has a handle, so it is not sent again, or `force` is set
// and another process has claimed the next attempt. `closed`: this process claimed the next attempt. `claimed`: another
// process is about to send the job. Undefined if the job changed.
async function keepFromSending(
  ledger: Ledger,
  job: Job,
  force: boolean,
): Promise<'kept' | 'closed' | 'claimed' | undefined> {
  if (job.handle !== undefined) return 'kept';
  const next = await nextAttempt(ledger, job);
  if (next === 'free') {
    const { owner } = await ledger.lease();
    return (await ledger.claim(attemptClaim(job), JSON.stringify(owner))) === undefined
      ? 'closed'
      : undefined;
  }
  if (next === 'changed') return undefined;
  if (force) return 'kept';
  if (next === 'claimed') return 'claimed';
  await ledger.append(job.id, eventOfEndedProcess(job, next));
  return undefined;
}

/**
 * The reasons for keeping a job, in order of precedence. `newer`: it is too recent. `open`: it has not ended, or its
 * record is damaged. `in_use`: a process is working on it. `undelivered`: the command that paid for it did not deliver
 * it and would resume it. `speech`: without the job, the speech would be paid for again. `key`: it has a key, and its
 * command would pay again.
 */
export const keepReasons = ['newer', 'open', 'in_use', 'undelivered', 'speech', 'key'] as const;
export type KeepReason = (typeof keepReasons)[number];

/** Options for pruning. */
interface PruneOptions {
  /** Only jobs whose last event is before this time are removed, in ms since 1970. */
  before: number;
  /** Whether to remove even jobs with a key. Repeating the command of such a job would then pay again. */
  keys: boolean;
  /** Whether to only report what would be removed. */
  dryRun: boolean;
}

/** The result of pruning. */
export interface PruneResult {
  /** Job ids, oldest first. */
  removed: string[];
  kept: Record<KeepReason, number>;
}

/**
 * Removes finished jobs from the ledger, except jobs whose command would then pay again.
 * @throws MgwError('local_io') if the ledger cannot be read or written.
 */
export async function prune(
  ledger: Ledger,
  options: PruneOptions,
  budgetsOf: BudgetsOf,
): Promise<PruneResult> {
  const keptCounts = Object.fromEntries(keepReasons.map((reason) => [reason, 0])) as PruneResult['kept'];
  const removed: string[] = [];
  const remove = async (job: Job): Promise<Obstacle | undefined> =>
    options.dryRun ? undefined : removeJob(ledger, job, false, budgetsOf);
  // Oldest first, so that a job is removed before the later job that replaced it.
  for (const id of (await ledger.ids()).reverse()) {
    const job = timeOf(id) < options.before ? await ledger.read(id) : undefined;
    const reason =
      job === undefined ? 'newer' : ((await reasonToKeep(job, ledger, options)) ?? (await remove(job)));
    if (reason === undefined) removed.push(id);
    else keptCounts[reason] += 1;
  }
  return { removed, kept: keptCounts };
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
  if (job.protocol === 'tts' && (hasPiece(job) || (await blocksSpeech(job, ledger)))) return 'speech';
  return job.key !== undefined && !keys ? 'key' : undefined;
}

function lastTimeOf(job: Job): number {
  const times = [job.created_at, job.submitted_at, job.finished_at, job.fetched_at];
  return Math.max(...times.map((time) => (time === undefined ? 0 : Date.parse(time))));
}

// A job that was created from an imported handle is never undelivered: no command submitted it, so none can be
// repeated.
function isUndelivered({ record: { fingerprint, goals } }: Job): boolean {
  return (
    fingerprint !== '' && !(goals.length > 0 && goals.every(({ deliveredAt }) => deliveredAt !== undefined))
  );
}

// `tts --split` recognizes a complete piece by its job.
function hasPiece(job: Job): boolean {
  return job.files.some((file) => isPiece(job, file) && existsSync(file.path));
}

// Speech that was charged but ended early blocks a second payment, unless a later job replaced it.
async function blocksSpeech({ id, state, record }: Job, ledger: Ledger): Promise<boolean> {
  if (state !== 'failed') return false;
  const siblingIds = await ledger.lookup('fingerprint', record.fingerprint);
  for (const siblingId of siblingIds)
    if (siblingId > id && (await ledger.read(siblingId))?.handle !== undefined) return false;
  return true;
}
