import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { names, readOwner } from '../ledger/names.ts';

/** Claims of this process under which it knows that nothing was sent, although it could not record that. */
const abandoned = new Set<string>();

/** Notes that nothing is sent under a claim of this process. */
export function abandon(claim: string): void {
  abandoned.add(claim);
}

/** The claim of the next attempt to send a job. */
export function attemptClaim({ id, record }: Job): string {
  return names.attempt(id, record.attempts + 1);
}

/** The state of the next attempt to send a job, of which the job has no `sending` event yet. */
export type NextAttempt =
  /** No process has claimed it. */
  | 'free'
  /** A process that is alive is about to send. */
  | 'claimed'
  /** The job has changed since it was read. */
  | 'changed'
  /** Its process is dead and had not recorded `sending`, before which nothing is sent: the next one may be made. */
  | 'unsent'
  /** It was claimed, and nothing can be shown of its process: it may have been sent. */
  | 'unknown';

/**
 * Finds the state of the next attempt to send a job from its claim.
 * @throws MgwError('local_io') if the ledger cannot be read.
 */
export async function nextAttempt(ledger: Ledger, job: Job): Promise<NextAttempt> {
  const name = attemptClaim(job);
  const text = await ledger.claimed(name);
  if (text === undefined) return 'free';
  const owner = readOwner(text);
  const life = abandoned.has(name) ? 'dead' : owner === undefined ? 'unknown' : await ledger.lifeOf(owner);
  if (life === 'alive') return 'claimed';
  // Read after the sign of death: what the process wrote last must not be overlooked.
  const last = await ledger.read(job.id);
  if (last?.record.attempts !== job.record.attempts || last.handle !== job.handle) return 'changed';
  // A claim that was confirmed without an event in the record tells that the record has lost it.
  const isUnsent = life === 'dead' && last.record.damaged === 0 && !(await ledger.isConfirmed(name));
  return isUnsent ? 'unsent' : 'unknown';
}
