import type { Deadline } from '../clock.ts';
import { messageOf, MgwError } from '../errors.ts';
import { removeLeftovers } from '../files/leftovers.ts';
import { acquireOutputLock, type Claimant, type OutputLock } from '../files/output-lock.ts';
import type { Job } from '../job.ts';
import { interruptedError, pendingError } from './errors.ts';
import type { JobDeps } from './deps.ts';

/** The result, its job, and the deadline. */
export interface Holding {
  /** What an earlier process left of the same is continued. */
  identity: string;
  deadline: Deadline;
  /** The job that is paid for; absent if nothing is yet. */
  job?: Job;
}

/** The lock of a speech output. Billed audio is in the record and is never continued. */
export const speechIdentity = 'speech';

/** Identifies one of a job's files for its lock; it does not change if its URL is signed again. */
export function identityOf({ id, protocol }: Pick<Job, 'id' | 'protocol'>, index: number): string {
  return protocol === 'tts' ? speechIdentity : `${id} ${index}`;
}

/** This process, as it claims an output. */
export async function claimantOf({ lease, ledger }: Pick<JobDeps, 'lease' | 'ledger'>): Promise<Claimant> {
  const held = await lease();
  return {
    owner: held.owner,
    assertHeld: () => held.assertHeld(),
    lifeOf: (owner) => ledger.lifeOf(owner),
  };
}

/**
 * Waits for the right to make an output: of two processes that make one, the second finds what the first has made.
 * @throws MgwError: exit 8 if another process still holds the lock at the deadline, 10, 130/143 interrupted.
 */
export async function lockOutput(path: string, deps: JobDeps, holding: Holding): Promise<OutputLock> {
  const { identity, deadline, job } = holding;
  const charged = job === undefined ? 'no' : 'yes';
  const busy = `Another process is still writing ${path}.`;
  const late = (): MgwError =>
    job === undefined ? new MgwError('pending', busy, { charged, retry: 'safe' }) : pendingError(job);
  const { clock, signals } = deps;
  const claimant = await claimantOf(deps);
  const lock = { claimant, clock, deadline, signal: signals.soft, late, charged } as const;
  return acquireOutputLock(path, identity, lock).catch((error: unknown) => {
    throw signals.soft.aborted ? interruptedError(signals.soft, job, charged) : error;
  });
}

/**
 * Removes what dead runs have left next to the files of a job that are there now, or will never be.
 * @param paths of its files, in their order
 */
export async function removeLeft(
  job: Pick<Job, 'id' | 'protocol'>,
  paths: readonly string[],
  deps: Pick<JobDeps, 'note' | 'lease' | 'ledger'>,
): Promise<void> {
  for (const [index, path] of paths.entries())
    await bestEffort(deps, async () => removeLeftovers(path, identityOf(job, index), await claimantOf(deps)));
}

/** Cleans up. Never throws: a leftover costs a little space, and must not turn a saved result into a failure. */
export async function bestEffort(
  { note }: Pick<JobDeps, 'note'>,
  action: () => Promise<void> | void,
): Promise<void> {
  try {
    await action();
  } catch (error) {
    note(`Something was left behind: ${messageOf(error)}`);
  }
}
