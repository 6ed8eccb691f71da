import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Budget } from '../budget/budget.ts';
import { deadlineIn, type Deadline } from '../clock.ts';
import { exitCodes, MgwError } from '../errors.ts';
import type { Goal, Job, JobEvent } from '../job.ts';
import type { JobDeps } from './order.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { readOwner } from '../ledger/names.ts';
import { attemptClaim, nextAttempt } from './charge-outcome.ts';
import { removedJobError, interruptedError, noSuchJob, noHandleError } from './errors.ts';
import { removeJob, recordBegan } from './remove.ts';

/** The event that begins a run. */
export type Began = JobEvent & { type: 'began' };

/** The result of a run. */
export interface RunResult<T> {
  value: T;
  /** The job, as recorded at the end of the run. */
  job: Job;
  /**
   * Records that the run ended, and whether the result was reported to the user. If it was reported, repeating the
   * command makes, and charges for, a new result (design 4).
   */
  delivered: (isReported?: boolean) => Promise<void>;
}

/**
 * Runs a command on a job. Records `began` before `work`, and `detached` if `work` fails, so that the same command
 * resumes the job. The caller records the delivery once the result has been reported to the user. All work is done
 * under the lease that the process held when the run began: if this process is suspended until the lease ends, another
 * process may continue the job. `work` receives that lease in its deps.
 * @param begin finds the job and records its argument, or leaves a job in doubt unchanged
 * @throws what `begin` throws; what `work` throws, with the current job.
 */
export async function inRun<T, D extends JobDeps>(
  goal: Goal,
  deps: D,
  begin: (began: Began) => Promise<Job>,
  work: (job: Job, runDeps: D, run: string) => Promise<T>,
): Promise<RunResult<T>> {
  const run = randomUUID().slice(0, 8);
  const lease = await deps.lease();
  const job = await begin({ type: 'began', run, owner: lease.owner, ...goal });
  const runDeps = {
    ...deps,
    lease: () =>
      Promise.resolve(lease).then((currentLease) => {
        currentLease.assertLease();
        return currentLease;
      }),
  };
  try {
    const value = await work(job, runDeps, run);
    const delivered = (isReported = true): Promise<void> =>
      deps.ledger.append(
        job.id,
        isReported ? { type: 'delivered', run } : { type: 'detached', run, exit_code: exitCodes.interrupted },
      );
    return { value, job: (await deps.ledger.read(job.id)) ?? job, delivered };
  } catch (error) {
    if (job.record.runs.some((each) => each.run === run)) await endFailedRun(job, run, error, deps);
    if (!(error instanceof MgwError)) throw error;
    if (error.code === 'budget' && (await tryToDiscard(job, deps))) throw error.with({ job: undefined });
    const knownJob = error.job ?? job;
    // Report the original error even if the ledger cannot be read, because that error may contain the handle.
    const latest = await deps.ledger.read(job.id).catch(() => knownJob);
    if (latest === undefined) throw removedJobError(error, knownJob);
    // The task was accepted before the process lost its lease.
    const isPaid = job.handle === undefined && latest.handle !== undefined && error.code === 'unreachable';
    throw error.with({ job: latest, ...(isPaid && { charged: 'yes', retry: 'resume' }) });
  }
}

/**
 * Returns the `begin` of {@link inRun} for an existing job that was sent, as `fetch` and `jobs wait` require.
 * @throws MgwError: exit 7 if it is unknown whether the task exists, 3 or 4 if it was rejected, 6 if it was
 * never sent, 8 if it is being sent.
 */
export function onExisting(job: Job, deps: JobDeps): (began: Began) => Promise<Job> {
  return (began) => {
    if (job.handle === undefined) throw noHandleError(job);
    return beginRun(job, deps)(began);
  };
}

/**
 * Returns the `begin` of {@link inRun} for an existing job, sent or not. It waits while another process is removing the
 * job.
 * @throws MgwError('usage') if the job was removed.
 */
export function beginRun(job: Job, deps: JobDeps): (began: Began) => Promise<Job> {
  return async (began) =>
    (await continueRun(job, deadlineIn(maxRemovalMs, deps.clock), deps, began)) ?? noSuchJob(job.id);
}

/** Maximum time to wait for a process that is removing the job and may have been suspended, in ms. */
const maxRemovalMs = 5000;

/**
 * Begins a run on an existing job. Waits while a process that is removing the job decides whether to keep it.
 * @returns undefined if the job was removed in the meantime
 */
export async function continueRun(
  job: Job,
  deadline: Deadline,
  deps: JobDeps,
  began: Began,
): Promise<Job | undefined> {
  await recordBegan(deps.ledger, job.id, began);
  try {
    return await waitForRemover(job, deadline, deps);
  } catch (error) {
    // Without this record, the run would be treated as alive until its process ends.
    await recordFailedRun(job, began.run, error, deps);
    throw error;
  }
}

async function waitForRemover(
  job: Job,
  deadline: Deadline,
  { ledger, clock, signals }: JobDeps,
): Promise<Job | undefined> {
  for (;;) {
    const latest = await ledger.read(job.id);
    if (latest === undefined || deadline.remainingMs() <= 0) return latest;
    // A process that has removed the job may have ended after the job was read.
    if (!(await isBeingRemoved(latest, ledger))) return ledger.read(job.id);
    await ledger.flush();
    await clock.sleep(50, signals.soft).catch(() => {
      throw interruptedError(signals.soft, latest, latest.handle === undefined ? 'maybe' : 'yes');
    });
  }
}

// A process that removes a job claims the job's next attempt or, if the job was sent, begins a run. It then checks for
// other runs a last time and may have missed this run.
async function isBeingRemoved(job: Job, ledger: Ledger): Promise<boolean> {
  const { runs, lifeOf } = job.record;
  if (job.handle !== undefined)
    return runs.some(({ command, owner }) => command === 'rm' && lifeOf(owner) === 'alive');
  const next = await nextAttempt(ledger, job);
  if (next !== 'claimed') return next === 'changed';
  const claimant = readOwner((await ledger.claimed(attemptClaim(job))) ?? '');
  return !runs.some(({ owner }) => isDeepStrictEqual(owner, claimant));
}

// A job that a budget refused leaves no record (design 14), unless an attempt to send it was made or another process
// continues it. Never throws: the error that ended the run must be reported.
async function tryToDiscard(job: Job, { ledger, allowances, note }: JobDeps): Promise<boolean> {
  try {
    const latest = await ledger.read(job.id);
    if (latest?.state !== 'prepared' || latest.submitted_at !== undefined) return false;
    const budgetsOf = async (): Promise<Budget[]> => (await allowances()).map(({ budget }) => budget);
    return (await removeJob(ledger, latest, false, budgetsOf)) === undefined;
  } catch {
    note(`Could not remove the record of ${job.id}, which was never sent.`);
    return false;
  }
}

// If it is not yet known whether the caller receives an error about a charge, the run stays open until it is.
async function endFailedRun(job: Job, run: string, error: unknown, deps: JobDeps): Promise<void> {
  const isAboutCharge = error instanceof MgwError && error.charged !== 'no';
  if (deps.onFailedRun === undefined || !isAboutCharge) await recordFailedRun(job, run, error, deps);
  else
    deps.onFailedRun((isReported) =>
      recordFailedRun(job, run, isReported ? error : error.with({ exit: 'interrupted' }), deps),
    );
}

/**
 * Records that a run ended with an error. Never throws: that error must be reported, and a dead run is recognized
 * without this record.
 */
export async function recordFailedRun(job: Job, run: string, error: unknown, deps: JobDeps): Promise<void> {
  const exitCode = error instanceof MgwError ? error.exitCode : 1;
  await deps.ledger.append(job.id, { type: 'detached', run, exit_code: exitCode }).catch(() => {
    deps.note(`Could not record that the run of ${job.id} ended.`);
  });
}
