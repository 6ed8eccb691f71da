import { MgwError } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import type { Job } from '../job.ts';
import { fetchCommand } from './errors.ts';
import type { Watched } from './watch.ts';

/** Exit 9: the gateway names no address of a result. */
export function noSource({ job, observation }: Watched, index: number): MgwError {
  const why = observation.warning ?? `the gateway names no address for file ${index + 1}.`;
  return new MgwError('result_unavailable', `A result of ${job.id} is not available: ${why}`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
    requestId: observation.requestId,
  });
}

/** Exit 9: no address gives the result, or no longer. */
export function gone(failure: Failure, job: Job): MgwError {
  return new MgwError('result_unavailable', `The result of ${job.id} is not available: ${failure.message}`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
    requestId: failure.requestId,
  });
}

/** Exit 9: the response is not a video. */
export function corrupt(job: Job, why: string): MgwError {
  return new MgwError('result_corrupt', `The result of ${job.id} is unusable: ${why}.`, {
    charged: 'yes',
    retry: 'resume',
    next: fetchCommand(job),
  });
}

/** Exit 3: an untrusted site requires the key. */
export function refusedThere({ failure, origin }: { failure: Failure; origin: string }, job: Job): MgwError {
  const text = `The result is at ${origin}, which refuses to give it without a key (${failure.message}). It is not the gateway's own site, so it got none. If you trust it: --trust-origin ${origin}`;
  return new MgwError('auth', text, {
    charged: 'yes',
    retry: 'resume',
    next: [...fetchCommand(job), '--trust-origin', origin],
  });
}
