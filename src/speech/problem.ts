import type { MgwError } from '../errors.ts';
import type { Job } from '../job.ts';
import { pendingError, rejectedError, showCommand } from '../jobs/errors.ts';
import { shownState } from '../jobs/reconcile.ts';
import { endedBadly, endedError } from './earlier-take.ts';
import { unknownSpeechError } from './errors.ts';

/**
 * What is wrong with speech as its record stands; undefined where it was delivered whole. Speech is over when its command
 * is: there is nothing at the gateway to wait for, only an end to tell.
 */
export function speechProblem(job: Job): MgwError | undefined {
  if (endedBadly(job)) return endedError(job);
  if (job.state === 'rejected') return rejectedError(job);
  if (shownState(job) === 'unknown')
    return unknownSpeechError(job, job.error?.message ?? 'The answer was lost');
  if (job.state === 'succeeded') return undefined;
  // Under way in another process, or never sent.
  return pendingError(job, { next: showCommand(job), ...(job.handle === undefined && { charged: 'no' }) });
}
