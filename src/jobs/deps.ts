import type { Ledger } from '../ledger/ledger.ts';
import type { PricedOrder } from '../payment/reserve.ts';
import type { PayDeps } from '../payment/pay-once.ts';
import type { Order } from './order.ts';

/** The dependencies of every action on a job. */
export interface JobDeps extends PayDeps {
  ledger: Ledger;
  /** Returns the maximum cost of a submission, if it is known. */
  priceOf: (order: Pick<Order, 'protocol' | 'model' | 'body'>) => Promise<PricedOrder>;
  /** The value of `base_url` in records: the base URL, or the sandbox's constant name. */
  gateway: string;
  /** Keyed hash of the API key (design 4). */
  account: string;
  /** Removes the key from a text before it is recorded. */
  redact: (text: string) => string;
  userAgent: string;
  /** When the command began, ms since 1970. If absent, it began when it first looked for its job. */
  startedAt?: number | undefined;
  /**
   * Given if processes share turns to submit. A job is then left to the living process that began it first, so that no
   * other one uses a turn for it; called when this process starts to wait for that.
   */
  onWaitForOther?: () => void;
}

/** The default time limit of one query, ms. */
export const queryTimeoutMs = 30_000;
