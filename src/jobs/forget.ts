import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { keyClaim } from './named-job.ts';
import { claimOfAttempt } from './attempt-claim.ts';

/**
 * Takes a job out of the ledger; its `--key` is free again. Saved files stay.
 * @throws MgwError('local_io') where that cannot be recorded.
 */
export async function forget(ledger: Ledger, job: Job): Promise<void> {
  // The key goes first: a key without a job would block for ever, a job without its key does no harm.
  if (job.key !== undefined) await ledger.release(keyClaim(job.key));
  await ledger.remove(job.id);
  // Last: without its record nobody can send the job, whatever it claims.
  for (let attempt = 1; attempt <= job.record.attempts; attempt += 1)
    await ledger.release(claimOfAttempt(job, attempt));
}
