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
import type { AttemptMoney, Job, Owner, RecordedEvent } from '../job.ts';
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
  /** The process that sent the attempt; absent if that record is lost. */
  owner?: Owner;
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
    owner: charge.owner,
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
   * unknown. `adopted`: the user adopted a handle, but the gateway has not returned its task yet. `doubt`: the outcome
   * remains unknown, because the user chose to send the job again.
   */
  outcome: 'accepted' | 'adopted' | 'none' | 'open' | 'doubt';
  /** True if the record of sending is lost. The attempt may have been sent under any reservation. */
  isLost?: true;
  /** The process that sent the attempt; absent if that record is lost. */
  owner?: Owner;
}

/** The attempts in the events that were read so far. */
interface KnownAttempts {
  charges: AttemptCharge[];
  /** The handles of accepted tasks. */
  handles: Set<string>;
  /** A handle that the user adopted. It may be wrong until the gateway returns its task. */
  adopted?: string;
  /** Whether an unreadable line may have been an attempt whose outcome the user has not resolved. */
  isDamaged: boolean;
}

/**
 * Returns the attempts in a job's events. An unreadable line (`undefined`) may have been an attempt, unless the user
 * found later that no task exists. That attempt was accepted if the job has a handle that no other attempt explains.
 */
export function chargesOf(events: readonly (RecordedEvent | undefined)[]): AttemptCharge[] {
  const attempts: KnownAttempts = { charges: [], handles: new Set(), isDamaged: false };
  for (const event of events) {
    if (event === undefined) attempts.isDamaged = true;
    else applyEvent(event, attempts);
  }
  const { charges, handles, adopted, isDamaged } = attempts;
  if (isDamaged && charges.every(({ outcome }) => outcome === 'none' || outcome === 'doubt')) {
    const at = events.find((event) => event !== undefined)?.at ?? '';
    const unconfirmed = adopted === undefined ? 'open' : 'adopted';
    charges.push({ attempt: 0, at, outcome: handles.size > 0 ? 'accepted' : unconfirmed, isLost: true });
  }
  return charges;
}

function applyEvent(event: RecordedEvent, known: KnownAttempts): void {
  const { charges } = known;
  if (event.type === 'sending') {
    const { attempt, at, owner, cost, reservation, budgets, limit } = event;
    charges.push({ attempt, at, outcome: 'open', owner, cost, reservation, budgets, limit });
  } else if (event.type === 'accepted') {
    applyAcceptance(event, known);
  } else if (event.type === 'observed' || event.type === 'finished') {
    confirmAdoption(known);
  } else if (event.type === 'unavailable' || event.type === 'rejected') {
    const refusedCharge = charges.findLast(({ attempt }) => attempt === (event.attempt ?? attempt));
    if (refusedCharge?.outcome === 'open') refusedCharge.outcome = 'none';
  } else if (event.type === 'unknown') {
    if (event.attempt !== undefined && !charges.some(({ attempt }) => attempt === event.attempt))
      charges.push({ attempt: event.attempt, at: event.at, outcome: 'open', isLost: true });
  } else if (event.type === 'resolved' && event.how !== 'adopted') {
    applyResolution(event, known);
  }
}

function applyAcceptance(event: RecordedEvent & { type: 'accepted' }, known: KnownAttempts): void {
  const { handle } = event;
  // Two processes may have recorded the same response.
  if (known.handles.has(handle)) return;
  if (event.adopted) {
    // The first handle takes precedence unless it is corrected. A corrected handle belongs to the same attempt.
    const isCorrection = known.adopted !== undefined && event.instead_of === known.adopted;
    if ((known.adopted !== undefined && !isCorrection) || known.handles.size > 0) return;
    if (!isCorrection) markCharge(known.charges, 'adopted');
    known.adopted = handle;
  } else if (handle === known.adopted) {
    confirmAdoption(known);
  } else {
    markCharge(known.charges, 'accepted');
    known.handles.add(handle);
  }
}

function confirmAdoption(known: KnownAttempts): void {
  if (known.adopted === undefined) return;
  for (const charge of known.charges) if (charge.outcome === 'adopted') charge.outcome = 'accepted';
  known.handles.add(known.adopted);
  known.adopted = undefined;
}

function applyResolution(event: RecordedEvent & { type: 'resolved' }, known: KnownAttempts): void {
  const outcome = event.how === 'not-created' ? 'none' : 'doubt';
  // A decision about a handle that another process has corrected has no effect on the adoption.
  const endsAdoption = known.adopted === undefined || known.adopted === event.instead_of;
  for (const charge of known.charges) {
    const isUndone = charge.outcome === 'adopted' && endsAdoption;
    if (charge.outcome === 'open' || charge.outcome === 'doubt' || isUndone) charge.outcome = outcome;
  }
  if (!endsAdoption) return;
  known.adopted = undefined;
  if (outcome === 'none' && known.handles.size === 0) known.isDamaged = false;
}

// Sets the outcome of the newest open attempt, or else of the newest attempt that was not accepted. For a handle that
// the user adopts, an attempt in doubt takes precedence over one that seemed to be refused.
function markCharge(charges: AttemptCharge[], outcome: 'accepted' | 'adopted'): void {
  const charge =
    charges.findLast((each) => each.outcome === 'open') ??
    (outcome === 'adopted' ? charges.findLast((each) => each.outcome === 'doubt') : undefined) ??
    charges.findLast((each) => each.outcome !== 'accepted');
  if (charge !== undefined) charge.outcome = outcome;
}
