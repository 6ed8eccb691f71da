import type { Decimal } from '../decimal.ts';
import type { Owner } from '../job.ts';

/** The time that a limit is for; by UTC, and by when an amount was reserved. Without one it is for ever. */
export type Per = 'day' | 'month';

export interface Limit {
  amount: Decimal;
  per?: Per;
}

/** What one submission may cost at most. */
export interface Charge {
  /** Names one run on one job: a later run on the same job makes a reservation of its own. */
  id: string;
  amount: Decimal;
  /** The process that is going to send. */
  owner: Owner;
}

/** An amount that is set aside and not settled yet. */
export interface Reservation extends Charge {
  /** When it was reserved, ISO 8601 in UTC. */
  at: string;
}

/** What became of a reservation's submission, as the ledger proves it. */
export type ChargeOutcome =
  /** It was accepted: the amount is spent. */
  | 'accepted'
  /** Nothing was accepted and nothing will be: the run has given up, or is certain to be dead. */
  | 'none'
  /** Nobody can tell yet: it is being sent, or its answer was lost. */
  | 'open';

/** The state of a budget, for the current day or month if its limit is for one. */
export interface Standing {
  /** Absent if none was set, or if the budget was removed. */
  limit?: Limit;
  /** Paid for. */
  spent: Decimal;
  /** Set aside for what is under way, unknown, or not proven to be over. */
  reserved: Decimal;
}

/** Whether an amount may be spent; if not, the state of the budget without it. */
export type Decision = { fits: true } | { fits: false; standing: Standing };

/**
 * An amount that must not be exceeded, whoever spends it. What a decision rests on is durable before it is given, and
 * any number of processes may ask at once: what is granted never exceeds the limit, whichever of them die.
 */
export interface Budget {
  /**
   * Sets an amount aside before anything is sent. `limit` is that of a budget which has none of its own.
   * @throws MgwError('local_io') if it cannot be recorded, or the record is damaged: nothing may be sent.
   */
  reserve(charge: Charge, limit?: Limit): Promise<Decision>;
  /** The submission was accepted: the amount stays spent. */
  keep(id: string): Promise<void>;
  /** The submission was certainly not accepted: the amount is given back. */
  release(id: string): Promise<void>;
  /** Keeps or gives back every reservation whose outcome is proven by now. */
  settle(): Promise<void>;
  /** Sets the limit, or makes the budget. */
  setLimit(limit: Limit): Promise<void>;
  /** Removes the limit, and forgets what was spent. */
  remove(): Promise<void>;
  standing(): Promise<Standing>;
  close(): Promise<void>;
}
