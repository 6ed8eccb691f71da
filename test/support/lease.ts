import type { Owner } from '../../src/job.ts';
import type { Lease } from '../../src/ledger/ledger.ts';

/** Returns a function that resolves to a lease of `owner` that never expires. */
export function leaseOf(owner: Owner): () => Promise<Lease> {
  return () => Promise.resolve({ owner, assertLease: () => undefined });
}
