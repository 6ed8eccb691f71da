import type { Deadline } from '../clock.ts';
import { messageOf, MgwError } from '../errors.ts';
import { removeLeftovers, acquireOutputLock, type Claimant, type OutputLock } from '../files/output-lock.ts';
import type { Job } from '../job.ts';
import { interruptedError, pendingError } from './errors.ts';
import type { JobDeps } from './order.ts';

/** The result to lock, its job, and the deadline for waiting. */
export interface LockRequest {
  /** Identifies the result. A partial file with the same identity is resumed. */
  identity: string;
  deadline: Deadline;
  /** The paid job; absent if nothing was paid yet. */
  job?: Job;
}

/**
 * The identity of all speech outputs. Jobs need no separate identities, because partial audio is never resumed and the
 * job's record contains its path.
 */
export const speechIdentity = 'speech';

/** Returns the lock identity of one of a job's files. It does not change if the file's URL is signed again. */
export function identityOf({ id, protocol }: Pick<Job, 'id' | 'protocol'>, index: number): string {
  return protocol === 'tts' ? speechIdentity : `${id} ${index}`;
}

/** Returns this process as the claimant of an output's lock. */
export async function claimantOf({ lease, ledger }: Pick<JobDeps, 'lease' | 'ledger'>): Promise<Claimant> {
  const currentLease = await lease();
  return {
    owner: currentLease.owner,
    assertLease: () => currentLease.assertLease(),
    lifeOf: (owner) => ledger.lifeOf(owner),
  };
}

/**
 * Waits for an output's lock. If two processes make the same output, the second waits and then finds the first one's
 * output.
 * @throws MgwError: exit 8 if another process still holds the lock at the deadline; exit 10 if the lock cannot be
 * written; exit 130 or 143 after a signal.
 */
export async function lockOutput(path: string, deps: JobDeps, request: LockRequest): Promise<OutputLock> {
  const { identity, deadline, job } = request;
  const charged = job === undefined ? 'no' : 'yes';
  const busyText = `Another process is still writing ${path}.`;
  const lateError = (): MgwError =>
    job === undefined ? new MgwError('pending', busyText, { charged, retry: 'safe' }) : pendingError(job);
  const { clock, signals } = deps;
  const claimant = await claimantOf(deps);
  const lock = { claimant, clock, deadline, signal: signals.soft, lateError, charged } as const;
  return acquireOutputLock(path, identity, lock).catch((error: unknown) => {
    throw signals.soft.aborted ? interruptedError(signals.soft, job, charged) : error;
  });
}

/**
 * Removes leftovers of dead runs next to a job's files, once the files exist or will never exist.
 * @param paths the paths of the job's files, in order
 */
export async function removeJobLeftovers(
  job: Pick<Job, 'id' | 'protocol'>,
  paths: readonly string[],
  deps: Pick<JobDeps, 'note' | 'lease' | 'ledger'>,
): Promise<void> {
  for (const [index, path] of paths.entries())
    await bestEffort(deps, async () => removeLeftovers(path, identityOf(job, index), await claimantOf(deps)));
}

/** Runs a cleanup. Never throws: a leftover only uses disk space and must not turn a saved result into a failure. */
export async function bestEffort(
  { note }: Pick<JobDeps, 'note'>,
  action: () => Promise<void> | void,
): Promise<void> {
  try {
    await action();
  } catch (error) {
    note(`A leftover could not be removed: ${messageOf(error)}`);
  }
}
