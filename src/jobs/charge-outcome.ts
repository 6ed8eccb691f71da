import { chargesOf, expensesOf } from '../budget/spend.ts';
import type { Budget, ChargeOutcome, Reservation } from '../budget/budget.ts';
import { compare, type Decimal } from '../decimal.ts';
import { messageOf } from '../errors.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Job, JobEvent, RecordedEvent } from '../job.ts';
import type { JobDeps } from './order.ts';
import { names, readOwner } from '../ledger/names.ts';

/**
 * Returns what the ledger proves about a job's reservation. `accepted`: an attempt under the reservation was accepted.
 * `none`: no such attempt was accepted, and none can follow, because the process is dead or the job was accepted under
 * a different reservation. A final amount: an attempt was accepted, and its reported usage costs more or less than the
 * reserved amount. `open`: anything else.
 * @throws MgwError('local_io') if the ledger cannot be read.
 * @param isClosed whether the caller has claimed the job's next attempt, so that no process can send it
 */
export async function chargeOutcome(
  ledger: Ledger,
  { id, owner, amount }: Reservation,
  isClosed = false,
): Promise<ChargeOutcome | Decimal> {
  const jobId = jobOfReservation(id);
  // Check the process before reading the record, so that its last write is not missed.
  const isDead = (await ledger.lifeOf(owner)) === 'dead';
  const job = await ledger.read(jobId);
  if (job === undefined) return 'open';
  const events = await ledger.events(jobId);
  const charges = chargesOf(events);
  const matchingCharges = charges.filter(({ reservation, isLost }) => isLost || reservation === id);
  if (matchingCharges.some(({ outcome }) => outcome === 'accepted')) {
    const finalAmount = expensesOf(job, events).find(({ reservation }) => reservation === id)?.amount;
    return finalAmount === undefined || compare(finalAmount, amount) === 0 ? 'accepted' : finalAmount;
  }
  if (matchingCharges.some(({ outcome }) => outcome !== 'none')) return 'open';
  if (isClosed) return 'none';
  if (!isDead && job.handle === undefined) return 'open';
  const next = await nextAttempt(ledger, job);
  return next === 'free' || next === 'unsent' ? 'none' : 'open';
}

/**
 * Replaces the reserved amount of paid speech with the final cost, based on the usage that the gateway reported
 * (specification 8). If the cost cannot be recorded, prints a note instead of throwing, because the speech is paid for.
 * @param job the job with its usage, in its final state
 */
export async function chargeUsage(
  job: Job,
  { ledger, allowances, note }: Pick<JobDeps, 'ledger' | 'allowances' | 'note'>,
): Promise<void> {
  if (job.usage === undefined) return;
  const noteFailure = (error: unknown): void =>
    note(`The final cost of ${job.id} could not be recorded in its budgets: ${messageOf(error)}`);
  try {
    const budgets = await allowances();
    if (budgets.length === 0) return;
    const events = withAcceptance(await ledger.events(job.id));
    const expense = expensesOf(job, events).find(({ kind }) => kind !== 'doubt');
    if (expense?.reservation === undefined) return;
    for (const { budget } of budgets)
      await budget.keep(expense.reservation, expense.amount).catch(noteFailure);
  } catch (error) {
    noteFailure(error);
  }
}

// Adds an `accepted` event if there is none, because recording the acceptance failed.
function withAcceptance(events: (RecordedEvent | undefined)[]): (RecordedEvent | undefined)[] {
  const isRecorded = chargesOf(events).some(({ outcome }) => outcome === 'accepted');
  return isRecorded ? events : [...events, { type: 'accepted', handle: '', at: '' }];
}

/**
 * Settles the open reservations of a job that is about to be removed. Unless the ledger proves that nothing was paid,
 * the reserved amount is treated as spent.
 * @param isClosed as for {@link chargeOutcome}
 * @throws MgwError('local_io') if the ledger cannot be read, or a budget cannot be written.
 */
export async function settleRemoved(
  ledger: Ledger,
  budgets: readonly Budget[],
  jobId: string,
  isClosed: boolean,
): Promise<void> {
  for (const budget of budgets) {
    await budget.settle(async (reservation) => {
      if (jobOfReservation(reservation.id) !== jobId) return 'open';
      const outcome = await chargeOutcome(ledger, reservation, isClosed);
      return outcome === 'open' ? 'accepted' : outcome;
    });
  }
}

/** Returns the job id in a reservation's id: the part before the dot. */
export function jobOfReservation(id: string): string {
  return id.split('.')[0] ?? '';
}

/** Claims of this process for attempts that were not and will not be sent, even if the ledger does not prove it. */
const abandonedClaims = new Set<string>();

/** Marks a claim of this process as abandoned: its attempt was not and will not be sent. */
export function abandonClaim(claim: string): void {
  abandonedClaims.add(claim);
}

/** Returns the name of the claim for the next attempt to send a job. */
export function attemptClaim({ id, record }: Job): string {
  return names.attempt(id, record.attempts + 1);
}

/** The state of the next attempt to send a job. The job has no `sending` event for this attempt yet. */
type NextAttempt =
  /** No process has claimed the attempt. */
  | 'free'
  /** A live process is about to send the job. */
  | 'claimed'
  /** The job has changed since it was read. */
  | 'changed'
  /** The claiming process died before it recorded `sending`, so nothing was sent. Another attempt may be made. */
  | 'unsent'
  /** The attempt was claimed and may have been sent: its process may be alive, or the record lost its event. */
  | 'unknown';

/**
 * Determines the state of the next attempt to send a job from the attempt's claim.
 * @throws MgwError('local_io') if the ledger cannot be read.
 */
export async function nextAttempt(ledger: Ledger, job: Job): Promise<NextAttempt> {
  const name = attemptClaim(job);
  const text = await ledger.claimed(name);
  if (text === undefined) return 'free';
  const owner = readOwner(text);
  const life = abandonedClaims.has(name)
    ? 'dead'
    : owner === undefined
      ? 'unknown'
      : await ledger.lifeOf(owner);
  if (life === 'alive') return 'claimed';
  // Read the record only after the process is known to be dead, so that its last write is not missed.
  const latest = await ledger.read(job.id);
  if (latest?.record.attempts !== job.record.attempts || latest.handle !== job.handle) return 'changed';
  // If the claim was confirmed but the record has no event, the record has lost the event.
  const isUnsent = life === 'dead' && latest.record.damaged === 0 && !(await ledger.isConfirmed(name));
  return isUnsent ? 'unsent' : 'unknown';
}

/** Returns the event that ends a claimed attempt whose process is not known to be alive, and recorded no `sending`. */
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
        error: {
          code: 'submit_unknown',
          message: 'The process that was to send it has not recorded whether it sent anything',
        },
      };
}
