import type { Decimal } from '../decimal.ts';
import type { Owner } from '../job.ts';

/**
 * The scope of a budget. A standing budget has a user-defined name and its own limit. The budget of a command or batch
 * counts everything ever paid for that command or batch, and each run specifies the limit.
 */
export type BudgetKind = 'standing' | 'command' | 'batch';

/** Returns the name of a batch's own budget in records. */
export function batchBudgetName(batch: string): string {
  return `batch ${batch}`;
}

/** Returns the kind and name of a budget in an attempt's record; no name for the budget of the attempt's command. */
export function recordedBudget(name: string): { kind: BudgetKind; name?: string } {
  if (name === '--budget') return { kind: 'command' };
  if (name.startsWith('batch ')) return { kind: 'batch', name: name.slice('batch '.length) };
  return { kind: 'standing', name };
}

/**
 * The period of a limit, in UTC. A reservation counts in the period in which it was made. A limit without a period
 * never resets.
 */
export type Per = 'day' | 'month';

/** A budget's limit. */
export interface Limit {
  amount: Decimal;
  per?: Per;
}

/** The maximum cost of one submission. */
export interface Charge {
  /** Identifies a run of a job. A later run of the same job makes a separate reservation. */
  id: string;
  amount: Decimal;
  /** The process that will send the submission. */
  owner: Owner;
}

/** An amount that is reserved but not settled. */
export interface Reservation extends Charge {
  /** The time of the reservation, ISO 8601 in UTC. */
  at: string;
}

/** The outcome of a reserved submission, as proved by the ledger. */
export type ChargeOutcome =
  /** The submission was accepted, so the amount is spent. */
  | 'accepted'
  /** Nothing was accepted, and nothing can be, because the run gave up or is certainly dead. */
  | 'none'
  /** The outcome is not known: the submission is being sent, or its response was lost. */
  | 'open';

/**
 * Returns a reservation's outcome. Returns `none` only if the reservation's process can no longer send anything under
 * the reservation. If the submission was accepted for an amount other than the reserved one, returns that final amount.
 */
export type OutcomeOf = (reservation: Reservation) => Promise<ChargeOutcome | Decimal>;

/** A budget's state, for the current day or month if its limit has a period. */
export interface BudgetState {
  /** Absent if no limit was set, or if the budget was removed. */
  limit?: Limit;
  /** The amount spent. */
  spent: Decimal;
  /** The amount reserved for payments that are in progress, or whose outcome is unknown or not proved. */
  reserved: Decimal;
}

/** Whether an amount may be spent. If not, includes the budget's state without the amount. */
export type Decision = { fits: true } | { fits: false; state: BudgetState };

/**
 * A limit on the spending of all processes together. A decision is durable before it is returned. Any number of
 * processes may reserve concurrently, and the granted amounts never exceed the limit, even if processes die.
 */
export interface Budget {
  /**
   * Reserves an amount before anything is sent. `limit` applies if the budget has no recorded limit.
   * @throws MgwError('local_io') if the reservation cannot be recorded or the record is damaged. Nothing may be sent in
   * that case.
   */
  reserve(charge: Charge, limit?: Limit): Promise<Decision>;
  /**
   * Records that the submission was accepted, so the amount is spent. A final amount replaces the reserved one, even
   * after an earlier `keep`. A final amount is durable when the call returns, because a later settlement from the
   * ledger cannot restore it.
   */
  keep(id: string, amount?: Decimal): Promise<void>;
  /** Records that the submission was definitely not accepted, so the amount becomes available again. */
  release(id: string): Promise<void>;
  /**
   * Settles every reservation whose outcome is proved. The settlement is durable if `outcomeOf` is given.
   * @param outcomeOf determines the outcomes; if absent, the ledger does
   */
  settle(outcomeOf?: OutcomeOf): Promise<void>;
  /** Sets the limit, and creates the budget if it does not exist. */
  setLimit(limit: Limit): Promise<void>;
  /** Removes the limit and the record of the amounts spent. */
  remove(): Promise<void>;
  state(): Promise<BudgetState>;
  close(): Promise<void>;
}
