import type { AttemptMoney, RecordedEvent } from '../job.ts';

/** What one attempt to send a job came to, as its events tell. */
export interface AttemptCharge extends AttemptMoney {
  attempt: number;
  /** When it was sent; of an attempt whose record is lost, when that was found. */
  at: string;
  /**
   * `none`: it was refused, or a person found no task. `open`: it is being sent, or nobody knows what became of it.
   * `doubt`: nobody will know, since a person chose to send again.
   */
  fate: 'accepted' | 'none' | 'open' | 'doubt';
  /** The record of its sending is lost: it may have been under any reservation. */
  isLost?: true;
}

/** The attempts among a job's events, `undefined` for a line that could not be read: it may have been anything. */
export function chargesOf(events: readonly (RecordedEvent | undefined)[]): AttemptCharge[] {
  const charges: AttemptCharge[] = [];
  const handles = new Set<string>();
  for (const event of events) if (event !== undefined) apply(event, charges, handles);
  const at = events.find((event) => event !== undefined)?.at ?? '';
  if (events.includes(undefined) && !charges.some(({ fate }) => fate === 'accepted' || fate === 'open'))
    charges.push({ attempt: 0, at, fate: 'open', isLost: true });
  return charges;
}

function apply(event: RecordedEvent, charges: AttemptCharge[], handles: Set<string>): void {
  if (event.type === 'sending') {
    const { attempt, at, cost, reservation, budgets } = event;
    charges.push({ attempt, at, fate: 'open', cost, reservation, budgets });
  } else if (event.type === 'accepted') {
    // Two processes may have read one answer.
    if (!handles.has(event.handle)) accept(charges);
    handles.add(event.handle);
  } else if (event.type === 'unavailable' || event.type === 'rejected') {
    const refused = charges.findLast(({ attempt }) => attempt === (event.attempt ?? attempt));
    if (refused?.fate === 'open') refused.fate = 'none';
  } else if (event.type === 'unknown') {
    if (event.attempt !== undefined && !charges.some(({ attempt }) => attempt === event.attempt))
      charges.push({ attempt: event.attempt, at: event.at, fate: 'open', isLost: true });
  } else if (event.type === 'resolved' && event.how !== 'adopted') {
    settle(charges, event.how === 'not-created' ? 'none' : 'doubt');
  }
}

// The newest that may have been; what was believed to be refused before was not.
function accept(charges: AttemptCharge[]): void {
  const accepted =
    charges.findLast(({ fate }) => fate === 'open') ?? charges.findLast(({ fate }) => fate !== 'accepted');
  if (accepted !== undefined) accepted.fate = 'accepted';
}

function settle(charges: AttemptCharge[], fate: AttemptCharge['fate']): void {
  for (const charge of charges) if (charge.fate === 'open') charge.fate = fate;
}
