import { chargesOf } from '../budget/spend.ts';
import type { ChargeOutcome, Reservation } from '../budget/budget.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { nextAttempt } from './attempt-claim.ts';

/**
 * What the ledger proves of a reservation for a job: `accepted` where an attempt under it was, `none` where nothing under it
 * was and its process can send nothing more, being dead, or since the job was accepted otherwise.
 * @throws MgwError('local_io') where the ledger cannot be read.
 */
export async function chargeOutcome(ledger: Ledger, { id, owner }: Reservation): Promise<ChargeOutcome> {
  const jobId = jobOfReservation(id);
  // Asked before the record is read: what the process wrote last must not be overlooked.
  const isOver = (await ledger.lifeOf(owner)) === 'dead';
  const job = await ledger.read(jobId);
  if (job === undefined) return 'open';
  const charges = chargesOf(await ledger.events(jobId));
  if (charges.some(({ reservation, fate }) => reservation === id && fate === 'accepted')) return 'accepted';
  const possible = charges.filter(({ reservation, isLost }) => isLost || reservation === id);
  if (possible.some(({ fate }) => fate === 'open' || fate === 'doubt')) return 'open';
  if (!isOver && job.handle === undefined) return 'open';
  const next = await nextAttempt(ledger, job);
  return next === 'free' || (isOver && next === 'unsent') ? 'none' : 'open';
}

// It bears the job's id, then what tells it from others for the same job.
function jobOfReservation(id: string): string {
  return id.split('.')[0] ?? '';
}
