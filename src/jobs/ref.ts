import { usageError } from '../errors.ts';
import type { Job, JobKind } from '../job.ts';
import { keyClaim } from './earlier.ts';
import { jobIdForm, newJobId } from '../ledger/job-id.ts';
import type { JobDeps } from './gateway.ts';
import type { Ledger } from '../ledger/ledger.ts';

/**
 * The job that a REF names: a job id or a unique part of one, `@key`, `@last` (of the protocol, where one is
 * given), or a handle of the gateway that the ledger knows. Undefined where nothing matches.
 * @throws MgwError('usage') where a part matches several jobs, or a REF can only be a job that is not there.
 */
export async function findJob(ledger: Ledger, ref: string, protocol?: JobKind): Promise<Job | undefined> {
  if (ref === '@last') return lastJob(ledger, protocol);
  if (ref.startsWith('@')) return namedByKey(ledger, ref.slice(1));
  if (jobIdForm.test(ref)) return (await ledger.read(ref)) ?? missing(ref);
  const byHandle = await firstJob(ledger, await ledger.lookup('handle', ref), (job) => job.handle === ref);
  return byHandle ?? byPart(ledger, ref);
}

async function lastJob(ledger: Ledger, protocol: JobKind | undefined): Promise<Job> {
  const fits = (job: Job): boolean => protocol === undefined || job.protocol === protocol;
  return (await firstJob(ledger, await ledger.ids(), fits)) ?? missing('@last');
}

async function namedByKey(ledger: Ledger, key: string): Promise<Job> {
  const claim = await ledger.claimed(keyClaim(key));
  const job = claim === undefined ? undefined : await ledger.read(claim.split(' ')[0] ?? '');
  return job ?? missing(`@${key}`);
}

async function byPart(ledger: Ledger, part: string): Promise<Job | undefined> {
  if (!/^[0-9a-z_]{4,18}$/.test(part)) return undefined;
  const ids = (await ledger.ids()).filter((id) => id.includes(part));
  if (ids.length > 1)
    throw usageError(`${part} is part of ${ids.length} job ids: ${ids.slice(0, 5).join(', ')}`);
  return ids[0] === undefined ? undefined : ledger.read(ids[0]);
}

async function firstJob(
  ledger: Ledger,
  ids: string[],
  fits: (job: Job) => boolean,
): Promise<Job | undefined> {
  for (const id of ids) {
    const job = await ledger.read(id);
    if (job !== undefined && fits(job)) return job;
  }
  return undefined;
}

/** The error for a REF that names no job. */
export function missing(ref: string): never {
  throw usageError(`No job is called ${ref} here. mgw jobs ls shows those there are.`, ['mgw', 'jobs', 'ls']);
}

/** Takes a task that was started elsewhere into the ledger by the gateway's own handle (design 1). */
export async function importHandle(handle: string, protocol: JobKind, deps: JobDeps): Promise<Job> {
  const { ledger, clock, gateway, account } = deps;
  const id = newJobId(clock.now());
  await ledger.create(id, [
    { type: 'prepared', protocol, base_url: gateway, fingerprint: '', account },
    { type: 'accepted', handle },
  ]);
  await ledger.index('handle', handle, id);
  return (await ledger.read(id)) ?? missing(handle);
}
