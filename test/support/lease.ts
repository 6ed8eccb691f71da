import type { Owner } from '../../src/job.ts';
import type { Lease } from '../../src/ledger/ledger.ts';

/** What `owner` holds for ever. */
export function leaseOf(owner: Owner): () => Promise<Lease> {
  return () => Promise.resolve({ owner, assertHeld: () => undefined });
}
