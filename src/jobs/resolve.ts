import { names } from '../ledger/names.ts';
import { MgwError, usageError } from '../errors.ts';
import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';

/** How a person ends an `unknown` (design 4). */
export type Resolution = { how: 'adopted'; handle: string } | { how: 'not-created' } | { how: 'resubmit' };

/**
 * Ends the doubt about a lost submission by what a person found out: the task's handle, that there is none, or
 * that it shall be sent again whatever became of it. Nothing is sent here.
 * @throws MgwError('usage') if there is nothing to resolve, MgwError('conflict') if another handle stands.
 */
export async function resolveJob(ledger: Ledger, job: Job, resolution: Resolution): Promise<Job> {
  if (job.handle !== undefined && resolution.how === 'adopted' && job.handle === resolution.handle)
    return job;
  if (job.handle !== undefined) {
    throw new MgwError(
      'conflict',
      `Job ${job.id} was accepted as ${job.handle}; there is nothing to resolve.`,
    );
  }
  if (job.state !== 'unknown')
    throw usageError(`Job ${job.id} is ${job.state}; there is nothing to resolve.`);
  if (resolution.how === 'resubmit' && job.record.damaged > 0) {
    throw usageError(
      `The record of ${job.id} is damaged; run the command that made it as a new one instead.`,
    );
  }
  // Of two that decide at once, the slower must not undo what the other one has begun since.
  await ledger.append(job.id, {
    type: 'resolved',
    attempt: await lastAttempt(ledger, job),
    how: resolution.how,
  });
  if (resolution.how === 'adopted') {
    await ledger.append(job.id, { type: 'accepted', handle: resolution.handle });
  }
  return (await ledger.read(job.id)) ?? job;
}

// A record that was lost or damaged may tell of fewer attempts than were made.
async function lastAttempt(ledger: Ledger, { id, record }: Job): Promise<number> {
  let attempt = record.attempts;
  while (record.damaged > 0 && (await ledger.claimed(names.attempt(id, attempt + 1))) !== undefined)
    attempt += 1;
  return attempt;
}
