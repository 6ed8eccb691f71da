import { MgwError, type ErrorCode } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import type { Job } from '../job.ts';

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
