import { MgwError } from '../errors.ts';
import type { Job } from '../job.ts';
import { failedError, noResult, withoutHandle } from '../jobs/errors.ts';
import { isTooNew } from '../jobs/grace.ts';
import { hasResult, observe } from '../jobs/observe.ts';
import type { Protocol, QueryVerdict } from '../protocols/protocol.ts';
import type { FlowDeps } from './flow-deps.ts';

/** A job after one query, and what is wrong with it; a job that is still running has no error. */
export interface QueriedJob {
  job: Job;
  error?: MgwError | undefined;
}

/** Asks the gateway once for the state of a job, without waiting. @throws MgwError as `observe` does. */
export async function queryJob(job: Job, protocol: Protocol, deps: FlowDeps): Promise<QueriedJob> {
  if (job.state === 'sending') return { job };
  if (job.state === 'unknown' || job.handle === undefined) return { job, error: withoutHandle(job) };
  const { job: seen, verdict } = await observe(job, protocol, deps);
  if (verdict.kind === 'observation' && verdict.state === 'succeeded' && !hasResult(verdict))
    return { job: seen, error: noResult(seen, verdict) };
  if (verdict.kind === 'observation' && verdict.warning !== undefined) deps.note(verdict.warning);
  return { job: seen, error: problemOf(seen, verdict, deps.clock.now()) };
}

function problemOf(job: Job, verdict: QueryVerdict, now: number): MgwError | undefined {
  if (verdict.kind === 'observation') return job.state === 'failed' ? failedError(job) : undefined;
  if (verdict.kind === 'again' && verdict.isWell) return undefined;
  const { code, message, requestId } = verdict.failure;
  const kind = verdict.kind === 'missing' && isTooNew(job, now) ? 'again' : verdict.kind;
  const exit = { unauthorized: 'auth', missing: 'incomplete', again: 'unavailable' } as const;
  return new MgwError(code, message, {
    exit: exit[kind],
    charged: kind === 'again' ? 'no' : 'yes',
    retry: kind === 'missing' ? 'never' : 'safe',
    requestId,
  });
}
