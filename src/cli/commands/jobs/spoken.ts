import type { Job } from '../../../job.ts';
import { pendingError, rejectedError, showCommand } from '../../../jobs/errors.ts';
import { shownState } from '../../../jobs/reconcile.ts';
import type { MgwError } from '../../../errors.ts';

/**
 * Why speech did not succeed, undefined where it did. It is over when its command is: there is nothing at the gateway
 * to wait for, only an end to tell.
 */
export async function speechProblem(job: Job): Promise<MgwError | undefined> {
  const [{ endedBadly, endedError }, { unknownSpeechError }] = await Promise.all([
    import('../../../speech/earlier-take.ts'),
    import('../../../speech/errors.ts'),
  ]);
  if (endedBadly(job)) return endedError(job);
  if (job.state === 'rejected') return rejectedError(job);
  if (shownState(job) === 'unknown')
    return unknownSpeechError(job, job.error?.message ?? 'The answer was lost');
  if (job.state === 'succeeded') return undefined;
  // Under way in another process, or never sent.
  return pendingError(job, { next: showCommand(job), ...(job.handle === undefined && { charged: 'no' }) });
}
