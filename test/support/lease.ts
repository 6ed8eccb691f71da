import type { Owner } from '../../src/job.ts';
import type { Lease } from '../../src/ledger/ledger.ts';

/** Returns a function that returns a lease of `owner` without an end. */
export function leaseOf(owner: Owner): () => Promise<Lease> {
  return () => Promise.resolve({ owner, assertLease: () => undefined });
}
