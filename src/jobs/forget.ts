import type { Budget } from '../budget/budget.ts';
import { isFinal, type Job, type JobEvent } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { attemptClaim, nextAttempt, settleRemoved } from './charge-outcome.ts';

/** Why a job is not removed: a process is working on it, or it has not ended and may have been paid for. */
export type Obstacle = 'in_use' | 'open';

/** Opens the budgets in which a job has an open reservation. */
export type BudgetsOf = (jobId: string) => Promise<readonly Budget[]>;

/**
 * Removes a job from the ledger once its reservations are settled. Its `--key` becomes free; saved files stay. If the
 * job could still be sent, its next attempt is claimed first: a process that was about to send it finds it removed.
 * @param force removes it despite an obstacle
 * @returns the obstacle; undefined if the job was removed
 * @throws MgwError('local_io') if that cannot be recorded.
 */
export async function forget(
  ledger: Ledger,
  given: Job,
  force: boolean,
  budgetsOf: BudgetsOf,
): Promise<Obstacle | undefined> {
  let isClosed = false;
  for (let job: Job | undefined = given; job !== undefined; job = await ledger.read(job.id)) {
    if (!force) {
      const obstacle = await obstacleOf(ledger, job);
      if (obstacle !== undefined) return obstacle;
    }
    const next = await keepFromSending(ledger, job, force);
    if (next === 'claimed') return 'in_use';
    isClosed = next === 'closed';
    if (next === 'kept' || isClosed) break;
  }
  const last = force ? undefined : await ledger.read(given.id);
  const obstacle = last && (await obstacleOf(ledger, last));
  if (obstacle !== undefined) return obstacle;
  await settleRemoved(ledger, await budgetsOf(given.id), given.id, isClosed);
  await ledger.remove(given.id);
  return undefined;
}

/** The obstacle to removing a job; undefined if there is none. */
export async function obstacleOf(ledger: Ledger, { state, record }: Job): Promise<Obstacle | undefined> {
  for (const { owner } of record.runs) if ((await ledger.lifeOf(owner)) !== 'dead') return 'in_use';
  return (isFinal(state) || state === 'prepared') && record.damaged === 0 ? undefined : 'open';
}

// `kept`: the job has a handle, so it is not sent again. `closed`: this process claimed its next attempt.
async function keepFromSending(
  ledger: Ledger,
  job: Job,
  force: boolean,
): Promise<'kept' | 'closed' | 'claimed' | 'again'> {
  if (job.handle !== undefined) return 'kept';
  const next = await nextAttempt(ledger, job);
  if (next === 'free') {
    const { owner } = await ledger.lease();
    return (await ledger.claim(attemptClaim(job), JSON.stringify(owner))) === undefined ? 'closed' : 'again';
  }
  if (next === 'changed') return 'again';
  if (force) return 'kept';
  if (next === 'claimed') return 'claimed';
  await ledger.append(job.id, eventOfEndedProcess(job, next));
  return 'again';
}

/** The event for an attempt that was claimed by a process that ended before it recorded `sending`. */
export function eventOfEndedProcess({ record }: Job, how: 'unsent' | 'unknown'): JobEvent {
  const attempt = record.attempts + 1;
  return how === 'unsent'
    ? {
        type: 'unavailable',
        attempt,
        error: { code: 'unreachable', message: 'The process ended before it sent anything' },
      }
    : {
        type: 'unknown',
        attempt,
        error: { code: 'submit_unknown', message: 'The process ended while it was sending' },
      };
}
