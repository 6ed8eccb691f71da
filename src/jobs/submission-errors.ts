import { MgwError, type ErrorCode } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import type { Job } from '../job.ts';
import { pendingError, rejectedError, unknownError } from './errors.ts';
import { shownState } from './settle.ts';

/** What an earlier attempt of a job was refused for. */
export function refusalOf(job: Job): Failure {
  const { code = 'invalid_request', message = 'The gateway refused the submission.' } = job.error ?? {};
  return { code: code as ErrorCode, message };
}

/** Exit 6: a rate limit or an outage that outlasted every try; nothing was accepted. */
export function refusedForNow(failure: Failure, tries: number): MgwError {
  return new MgwError(
    failure.code,
    `Not accepted after ${tries} ${tries === 1 ? 'try' : 'tries'}: ${failure.message}`,
    {
      exit: 'unavailable',
      retry: 'safe',
      requestId: failure.requestId,
    },
  );
}

/**
 * Why a job without a handle cannot be asked for: exit 3 or 4 where it was refused, 6 where it was never sent, 8
 * where another process is sending it, 7 where its answer was lost.
 */
export function withoutHandle(job: Job): MgwError {
  if (job.state === 'rejected') return rejectedError(refusalOf(job));
  if (shownState(job) === 'sending') return pendingError(job, { charged: 'maybe' });
  if (job.state !== 'prepared') return unknownError(job, job.error?.message ?? 'The answer was lost');
  const next = ['mgw', 'jobs', 'show', job.id];
  const text = `Job ${job.id} was never sent. The command that made it sends it when it is run again.`;
  return new MgwError('unreachable', text, { retry: 'safe', next });
}

/** Exit 6: no connection came to stand, so nothing was sent. */
export function unsentError(message: string, cause: unknown): MgwError {
  return new MgwError('unreachable', message, { retry: 'safe', cause });
}

/** Exit 6: the next try would come after the wait has ended; says when it would be. */
export function tooLong(why: string, code: ErrorCode, at: number): MgwError {
  const when = new Date(Math.min(at, 8.64e15)).toISOString();
  return new MgwError(code, `${why}; the next try would be at ${when}, after the wait ends.`, {
    exit: 'unavailable',
    retry: 'safe',
  });
}
