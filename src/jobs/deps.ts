import type { Ledger } from '../ledger/ledger.ts';
import type { Priced } from '../payment/reserve.ts';
import type { PayDeps } from '../payment/pay-once.ts';
import type { Order } from './order.ts';

/** What every action on a job works with. */
export interface JobDeps extends PayDeps {
  ledger: Ledger;
  /** What a submission costs at most, as far as it is known. */
  priceOf: (order: Pick<Order, 'protocol' | 'model' | 'body'>) => Promise<Priced>;
  /** What `base_url` says in the records: the base URL, or the sandbox's constant name. */
  gateway: string;
  /** Keyed hash of the API key (design 4). */
  account: string;
  /** Takes the key out of a text before it is recorded. */
  redact: (text: string) => string;
  userAgent: string;
  /** When the command began, ms since 1970. If absent, it began when it first looked for its job. */
  startedAt?: number | undefined;
}

/** The default time limit of one query, ms. */
export const queryTimeoutMs = 30_000;
