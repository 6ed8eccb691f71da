import type { Owner } from '../../src/job.ts';
import type { Lease } from '../../src/ledger/ledger.ts';

/** A lease of `owner` that never ends. */
export function leaseOf(owner: Owner): () => Promise<Lease> {
  return () => Promise.resolve({ owner, assertLease: () => undefined });
}
