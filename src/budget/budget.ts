import type { Decimal } from '../decimal.ts';
import type { Owner } from '../job.ts';

/** The period of a limit, in UTC, by the time of the reservation. Without one, the limit is for all time. */
export type Per = 'day' | 'month';

/** The limit of a budget. */
export interface Limit {
  amount: Decimal;
  per?: Per;
}

/** The maximum cost of one submission. */
export interface Charge {
  /** Identifies one run on one job. A later run on the same job makes another reservation. */
  id: string;
  amount: Decimal;
  /** The process that will send the submission. */
  owner: Owner;
}

/** An amount that is reserved and not settled yet. */
export interface Reservation extends Charge {
  /** When it was reserved, ISO 8601 in UTC. */
  at: string;
}

/** The outcome of a reserved submission, as the ledger proves it. */
export type ChargeOutcome =
  /** It was accepted: the amount is spent. */
  | 'accepted'
  /** Nothing was accepted and nothing will be: the run gave up, or is certainly dead. */
  | 'none'
  /** Not known yet: it is being sent, or its response was lost. */
  | 'open';

/**
 * Returns the outcome of a reservation; `none` only if its process can no longer send anything under it. If it was
 * accepted and its final amount differs from the reserved one, returns the final amount.
 */
export type OutcomeOf = (reservation: Reservation) => Promise<ChargeOutcome | Decimal>;

/** The state of a budget, for the current day or month if its limit is for one. */
export interface BudgetState {
  /** The limit; absent if none was set, or if the budget was removed. */
  limit?: Limit;
  /** The amount that was paid. */
  spent: Decimal;
  /** The amount reserved for payments that are in progress, or whose outcome is unknown or not proven. */
  reserved: Decimal;
}

/** Whether an amount may be spent; if not, the state of the budget without it. */
export type Decision = { fits: true } | { fits: false; state: BudgetState };

/**
 * An amount that all processes together must not exceed. A decision is durable before it is returned. Any number of
 * processes may reserve concurrently, and the granted amounts never exceed the limit, even if processes die.
 */
export interface Budget {
  /**
   * Reserves an amount before anything is sent. `limit` is used if the budget has no recorded limit.
   * @throws MgwError('local_io') if it cannot be recorded, or the record is damaged. Nothing may be sent then.
   */
  reserve(charge: Charge, limit?: Limit): Promise<Decision>;
  /**
   * Records that the submission was accepted, so that the amount is spent. A final amount replaces the reserved one,
   * even after an earlier `keep`. It is durable on return, because a settlement from the ledger cannot repeat it.
   */
  keep(id: string, amount?: Decimal): Promise<void>;
  /** Records that the submission was definitely not accepted, so that the amount becomes available again. */
  release(id: string): Promise<void>;
  /**
   * Settles every reservation whose outcome is proven; durable if `outcomeOf` is given.
   * @param outcomeOf determines the outcomes; if absent, the ledger does
   */
  settle(outcomeOf?: OutcomeOf): Promise<void>;
  /** Sets the limit, and creates the budget if it is missing. */
  setLimit(limit: Limit): Promise<void>;
  /** Removes the limit and the record of what was spent. */
  remove(): Promise<void>;
  state(): Promise<BudgetState>;
  close(): Promise<void>;
}
