import { messageOf, MgwError, usageError } from '../errors.ts';
import { backoffMs } from '../http/retry.ts';
import type { Job, JobKind } from '../job.ts';
import { jobIdForm, type Ids } from '../ledger/job-id.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Observation, Protocol } from '../protocols/protocol.ts';
import { lostJob, namedJob, latestRetry } from './named-job.ts';
import type { JobDeps } from './deps.ts';
import { query, recordSeen } from './observe.ts';

/**
 * Finds the job of a REF in the ledger: a job id or a unique part of one, `@key`, `@last` (of the protocol, if one is
 * given), or a handle that the ledger knows. Undefined if nothing matches.
 * @throws MgwError('usage') if a part matches several jobs, or a REF in the form of mgw's own ids names no job.
 */
export async function findJob(ledger: Ledger, ref: string, protocol?: JobKind): Promise<Job | undefined> {
  if (ref === '@last') return lastJob(ledger, protocol);
  if (ref.startsWith('@')) return (await keyedJob(ledger, ref.slice(1))) ?? missing(ref);
  if (jobIdForm.test(ref)) return (await lostJob(ledger, ref)) ?? missing(ref);
  const byHandle = await firstJob(ledger, await ledger.lookup('handle', ref), (job) => job.handle === ref);
  const found = byHandle ?? (await byPart(ledger, ref));
  return found === undefined && ref.startsWith('job_') ? missing(ref) : found;
}

// Only the keys of a batch's rows have a slash. A row that was tried again is its latest job.
async function keyedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  return key.includes('/') ? (await latestRetry(ledger, key)).job : namedJob(ledger, key);
}

async function lastJob(ledger: Ledger, protocol: JobKind | undefined): Promise<Job> {
  const fits = (job: Job): boolean => protocol === undefined || job.protocol === protocol;
  return (await firstJob(ledger, await ledger.listed(), fits)) ?? missing('@last');
}

async function byPart(ledger: Ledger, part: string): Promise<Job | undefined> {
  if (!/^[0-9a-z_]{4,18}$/.test(part)) return undefined;
  const ids = (await ledger.ids()).filter((id) => id.includes(part));
  if (ids.length > 1)
    throw usageError(`${part} is part of ${ids.length} job ids: ${ids.slice(0, 5).join(', ')}`);
  return ids[0] === undefined ? undefined : ledger.read(ids[0]);
}

async function firstJob(ledger: Ledger, ids: Ids, fits: (job: Job) => boolean): Promise<Job | undefined> {
  for (let index = 0; index < ids.length; index += 1) {
    const job = await ledger.read(ids.at(index) ?? '');
    if (job !== undefined && fits(job)) return job;
  }
  return undefined;
}

/** Returns the job of a REF in the ledger. @throws MgwError('usage') if there is none, as {@link findJob} does. */
export async function recordedJob(ledger: Ledger, ref: string): Promise<Job> {
  return (await findJob(ledger, ref)) ?? missing(ref);
}

/** Throws the error for a REF that names no job. */
export function missing(ref: string): never {
  throw usageError(`No such job: ${ref}.`, ['mgw', 'jobs', 'ls']);
}

/**
 * Imports a handle that the ledger has never seen, once the gateway has confirmed that it knows it (design 1).
 * @throws MgwError('usage') if it is no handle of the protocol; exit 9 if the gateway does not know it, 3 if it refuses
 * the key, 6 if it does not answer.
 */
export async function importHandle(handle: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
  const seen = await confirmed(handle, protocol, deps);
  const { ledger, clock, gateway, account } = deps;
  const id = await ledger.newId(clock.now());
  await ledger.create(id, [
    { type: 'prepared', protocol: protocol.name, base_url: gateway, fingerprint: '', account },
    { type: 'accepted', handle },
  ]);
  const job = (await ledger.read(id)) ?? missing(handle);
  return recordSeen(job, seen, deps);
}

// Only the state of the task confirms that it exists.
async function confirmed(handle: string, protocol: Protocol, deps: JobDeps): Promise<Observation> {
  checkHandle(handle, protocol);
  for (let tries = 0; ; tries += 1) {
    const { verdict } = await query(handle, undefined, protocol, deps);
    if (verdict.kind === 'observation') return verdict;
    const { code, message, requestId, retryAfterMs } = verdict.failure;
    const pauseMs = backoffMs(tries, { floorMs: retryAfterMs });
    const isLate = pauseMs >= (deps.client.deadline?.remainingMs() ?? Infinity);
    const isLast = verdict.kind !== 'again' || verdict.isWell === true || isLate || tries >= deps.retries;
    if (isLast) {
      const isOpen = verdict.kind === 'again' && verdict.isWell !== true;
      const exit = verdict.kind === 'unauthorized' ? 'auth' : isOpen ? 'unavailable' : 'incomplete';
      const text = isOpen
        ? message
        : `No such job: ${handle}. The gateway does not know that handle: ${message}`;
      throw new MgwError(isOpen || exit === 'auth' ? code : 'not_found', text, {
        exit,
        retry: isOpen ? 'safe' : 'never',
        ...(!isOpen && { next: ['mgw', 'jobs', 'ls'] }),
        requestId,
      });
    }
    await deps.clock.sleep(pauseMs, deps.signals.soft);
  }
}

function checkHandle(ref: string, protocol: Protocol): void {
  try {
    protocol.query(ref);
  } catch (error) {
    throw usageError(
      `No such job: ${ref}. It is no handle of Protocol ${protocol.name}: ${messageOf(error)}`,
    );
  }
}
