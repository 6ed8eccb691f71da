import type { Job, Owner } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';

/** The claim that the next attempt of a job stands for. */
export function attemptClaim(job: Job): string {
  return claimOfAttempt(job, job.record.attempts + 1);
}

/** The claim that one attempt of a job stands for, from 1. */
export function claimOfAttempt({ id }: Pick<Job, 'id'>, attempt: number): string {
  return `send.${id}.${attempt}`;
}

/** How the next attempt of a job stands, which has no `sending` event in the job as it was read. */
export type NextAttempt =
  /** Nobody has claimed it. */
  | 'free'
  /** A process that is alive is about to send. */
  | 'claimed'
  /** Something has become of it since the job was read. */
  | 'changed'
  /** Its process is dead and had not recorded `sending`, before which nothing is sent: the next one may be made. */
  | 'unsent'
  /** It was claimed, and nothing can be shown of its process: it may have been sent. */
  | 'unknown';

/**
 * How the next attempt of a job stands, by its claim.
 * @throws MgwError('local_io') where the ledger cannot be read.
 */
export async function nextAttempt(ledger: Ledger, job: Job): Promise<NextAttempt> {
  const name = attemptClaim(job);
  const holder = await ledger.claimed(name);
  if (holder === undefined) return 'free';
  const owner = ownerIn(holder);
  const life = owner === undefined ? 'unknown' : await ledger.lifeOf(owner);
  if (life === 'alive') return 'claimed';
  // Read after the sign of death: what the process wrote last must not be overlooked.
  const last = await ledger.read(job.id);
  if (last !== undefined && (last.record.attempts !== job.record.attempts || last.handle !== undefined))
    return 'changed';
  // Without its event a claim that was confirmed tells of a record that has lost it.
  const isUnsent = life === 'dead' && last?.record.damaged === 0 && (await ledger.isTentative(name));
  // The dead give no claim up: where this one is still theirs, nobody else has the attempt.
  if ((await ledger.claimed(name)) !== holder) return 'changed';
  return isUnsent ? 'unsent' : 'unknown';
}

// A claim whose content is damaged was made by somebody; nobody can be asked.
function ownerIn(holder: string): Owner | undefined {
  try {
    return JSON.parse(holder) as Owner;
  } catch {
    return undefined;
  }
}
