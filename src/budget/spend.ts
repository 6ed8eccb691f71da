import {
  add,
  type Decimal,
  decimalOf,
  formatDecimal,
  max,
  multiply,
  parseDecimal,
  divideByPowerOfTen,
  zero,
} from '../decimal.ts';
import type { AttemptMoney, Job, RecordedEvent } from '../job.ts';
import { at, type Json } from '../json.ts';

/** What an attempt cost, or may have cost. */
export interface Expense {
  /** When the attempt was sent, ISO 8601 in UTC. */
  at: string;
  job: string;
  model?: string;
  /** The value of `--key`. */
  key?: string;
  budgets: readonly string[];
  /** The id of the attempt's reservation in each of `budgets`. */
  reservation?: string;
  /** The attempt's cost; absent if no price was known. */
  amount?: Decimal;
  /** `failed`: the task failed, and some gateways refund such tasks. `doubt`: it is unknown whether the task exists. */
  kind: 'spent' | 'failed' | 'doubt';
}

/** Returns the cost of each attempt in a job. Excludes refused attempts, which cost nothing. */
export function expensesOf(job: Job, events: readonly (RecordedEvent | undefined)[]): Expense[] {
  const charges = chargesOf(events).filter(({ outcome }) => outcome !== 'none');
  // The job's state and final cost are those of the first task that was accepted.
  const followedCharge = charges.find(({ outcome }) => outcome === 'accepted');
  return charges.map((charge) => ({
    at: charge.at,
    job: job.id,
    model: job.model,
    key: job.key,
    budgets: charge.budgets ?? [],
    reservation: charge.reservation,
    amount: charge === followedCharge ? settledAmount(job, charge) : amountOf(charge),
    kind:
      charge.outcome !== 'accepted'
        ? 'doubt'
        : charge === followedCharge && mayBeFree(job)
          ? 'failed'
          : 'spent',
  }));
}

// A failed task may be free. However, the gateway charges for interrupted speech, and for any speech that sent audio
// (design 8).
function mayBeFree({ state, error, details }: Job): boolean {
  if (state !== 'failed') return false;
  return error?.code !== 'speech_incomplete' && at(details as Json, 'audio_bytes') === undefined;
}

// The gateway charges for speech by its own character count, which it reports in its response.
function settledAmount({ usage, state }: Job, charge: AttemptCharge): Decimal | undefined {
  const { cost } = charge;
  const characters = at(usage as Json, 'text_words');
  if (
    cost?.per_10k_characters === undefined ||
    typeof characters !== 'number' ||
    !Number.isSafeInteger(characters) ||
    characters < 0
  )
    return amountOf(charge);
  const rate = parseDecimal(cost.per_10k_characters);
  const countedCost = divideByPowerOfTen(multiply(rate, decimalOf(characters)), 4);
  // The character count of interrupted speech may be incomplete.
  return state === 'failed' ? max(countedCost, parseDecimal(cost.at_most)) : countedCost;
}

function amountOf({ cost }: AttemptCharge): Decimal | undefined {
  return cost === undefined ? undefined : parseDecimal(cost.at_most);
}

/** The ways to group expenses. */
export const spendGroups = ['model', 'day', 'batch', 'key', 'budget'] as const;
export type SpendGroup = (typeof spendGroups)[number];

/** Returns the groups to which an expense belongs; `['']` if the expense belongs to no group. */
export function groupsOf({ at: sentAt, model, key, budgets }: Expense, by: SpendGroup): readonly string[] {
  switch (by) {
    case 'model':
      return [model ?? ''];
    case 'day':
      return [sentAt.slice(0, 10)];
    case 'batch':
      return [key?.includes('/') ? (key.split('/')[0] ?? '') : ''];
    case 'key':
      return [key ?? ''];
    case 'budget':
      return budgets.length === 0 ? [''] : budgets;
  }
}

/** A sum of expenses. The sum is unknown if any expense has no price. */
export class Sum {
  charges = 0;
  unpriced = 0;
  known = zero;

  add(amount: Decimal | undefined): void {
    this.charges += 1;
    if (amount === undefined) this.unpriced += 1;
    else this.known = add(this.known, amount);
  }

  /** The total in plain digits, or `unknown`. */
  get total(): string {
    return this.unpriced > 0 ? 'unknown' : formatDecimal(this.known);
  }
}

/** Sums of expenses by kind. */
export class Sums {
  readonly spent = new Sum();
  readonly failed = new Sum();
  readonly doubt = new Sum();

  add({ kind, amount }: Expense): void {
    this[kind].add(amount);
  }
}

/** The outcome of one attempt to submit a job, according to the job's events. */
interface AttemptCharge extends AttemptMoney {
  attempt: number;
  /** When the attempt was sent or, if that record is lost, when the attempt was discovered. */
  at: string;
  /**
   * `none`: the attempt was refused, or the user found no task. `open`: the attempt is being sent, or its outcome is
   * unknown. `doubt`: the outcome remains unknown, because the user chose to send the job again.
   */
  outcome: 'accepted' | 'none' | 'open' | 'doubt';
  /** True if the record of sending is lost. The attempt may have been sent under any reservation. */
  isLost?: true;
}

/**
 * Returns the attempts in a job's events. An unreadable line (`undefined`) may have been an attempt. That attempt was
 * accepted if the job has a handle that no other attempt explains.
 */
export function chargesOf(events: readonly (RecordedEvent | undefined)[]): AttemptCharge[] {
  const charges: AttemptCharge[] = [];
  const handles = new Set<string>();
  for (const event of events) if (event !== undefined) applyEvent(event, charges, handles);
  const at = events.find((event) => event !== undefined)?.at ?? '';
  if (
    events.includes(undefined) &&
    !charges.some(({ outcome }) => outcome === 'accepted' || outcome === 'open')
  )
    charges.push({ attempt: 0, at, outcome: handles.size > 0 ? 'accepted' : 'open', isLost: true });
  return charges;
}

function applyEvent(event: RecordedEvent, charges: AttemptCharge[], handles: Set<string>): void {
  if (event.type === 'sending') {
    const { attempt, at, cost, reservation, budgets, limit } = event;
    charges.push({ attempt, at, outcome: 'open', cost, reservation, budgets, limit });
  } else if (event.type === 'accepted') {
    // Two processes may have recorded the same response. A corrected handle belongs to
    // the same attempt as the wrong one.
    if (!handles.has(event.handle) && event.instead_of === undefined) markAccepted(charges, event.adopted);
    handles.add(event.handle);
  } else if (event.type === 'unavailable' || event.type === 'rejected') {
    const refusedCharge = charges.findLast(({ attempt }) => attempt === (event.attempt ?? attempt));
    if (refusedCharge?.outcome === 'open') refusedCharge.outcome = 'none';
  } else if (event.type === 'unknown') {
    if (event.attempt !== undefined && !charges.some(({ attempt }) => attempt === event.attempt))
      charges.push({ attempt: event.attempt, at: event.at, outcome: 'open', isLost: true });
  } else if (event.type === 'resolved' && event.how !== 'adopted') {
    const outcome = event.how === 'not-created' ? 'none' : 'doubt';
    for (const charge of charges)
      if (charge.outcome === 'open' || charge.outcome === 'doubt') charge.outcome = outcome;
  }
}

// Marks the newest open attempt as accepted, or else the newest attempt in doubt or that seemed to have been refused.
// For a handle that the user adopts, an attempt in doubt takes precedence over a refused one.
function markAccepted(charges: AttemptCharge[], isAdopted = false): void {
  const acceptedCharge =
    charges.findLast(({ outcome }) => outcome === 'open') ??
    (isAdopted ? charges.findLast(({ outcome }) => outcome === 'doubt') : undefined) ??
    charges.findLast(({ outcome }) => outcome !== 'accepted');
  if (acceptedCharge !== undefined) acceptedCharge.outcome = 'accepted';
}
