import { messageOf, usageError } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/gateway.ts';
import { findJob, importHandle } from '../../../jobs/ref.ts';
import { settle } from '../../../jobs/settle.ts';
import type { Protocol } from '../../../protocols/protocol.ts';

/**
 * The job that a REF of `mgw video X` names, brought to where its record proves it to be. A handle that the
 * ledger has never seen is imported, so that a job started elsewhere can be picked up (design 1).
 * @throws MgwError('usage') where the job is one of another protocol or gateway.
 */
export async function videoJob(ref: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
  const found = await findJob(deps.ledger, ref, protocol.name);
  if (found === undefined) {
    checkHandle(ref, protocol);
    return importHandle(ref, protocol.name, deps);
  }
  const job = await settle(deps.ledger, found, (reply, body) =>
    protocol.readSubmission(reply, (body ?? {}) as Record<string, never>),
  );
  if (job.protocol !== protocol.name) {
    throw usageError(`${ref} is a job of ${job.protocol}: use mgw video ${job.protocol}.`);
  }
  if (job.base_url !== '' && job.base_url !== deps.gateway) {
    throw usageError(
      `${ref} was submitted to ${job.base_url}, not to ${deps.gateway}; use --base-url or --profile.`,
    );
  }
  return job;
}

function checkHandle(ref: string, protocol: Protocol): void {
  try {
    protocol.query(ref);
  } catch (error) {
    throw usageError(
      `${ref} names no job here, and it is no handle of Protocol ${protocol.name}: ${messageOf(error)}`,
    );
  }
}
