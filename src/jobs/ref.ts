import { messageOf, MgwError, usageError } from '../errors.ts';
import { backoffMs } from '../http/backoff.ts';
import type { Job, JobKind } from '../job.ts';
import type { JsonObject } from '../json.ts';
import { jobIdForm, type Ids } from '../ledger/job-id.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Observation, Protocol } from '../protocols/protocol.ts';
import { namedJob } from './named-job.ts';
import type { JobDeps } from './deps.ts';
import { query, recordSeen } from './observe.ts';
import { isSameGateway } from './order.ts';
import { reconcile } from './reconcile.ts';
import { latestTake } from './takes.ts';

/**
 * The job that a REF names: a job id or a unique part of one, `@key`, `@last` (of the protocol, where one is
 * given), or a handle of the gateway that the ledger knows. Undefined where nothing matches.
 * @throws MgwError('usage') where a part matches several jobs, or a REF has the form of mgw's own and names no job.
 */
export async function findJob(ledger: Ledger, ref: string, protocol?: JobKind): Promise<Job | undefined> {
  if (ref === '@last') return lastJob(ledger, protocol);
  if (ref.startsWith('@')) return (await keyedJob(ledger, ref.slice(1))) ?? missing(ref);
  if (jobIdForm.test(ref)) return (await ledger.read(ref)) ?? missing(ref);
  const byHandle = await firstJob(ledger, await ledger.lookup('handle', ref), (job) => job.handle === ref);
  const found = byHandle ?? (await byPart(ledger, ref));
  return found === undefined && ref.startsWith('job_') ? missing(ref) : found;
}

// The slash is a batch's alone: a row that was tried again goes by its latest job.
async function keyedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  return key.includes('/') ? (await latestTake(ledger, key)).job : namedJob(ledger, key);
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

/** The error for a REF that names no job. */
export function missing(ref: string): never {
  throw usageError(`No job is called ${ref} here. mgw jobs ls shows those there are.`, ['mgw', 'jobs', 'ls']);
}

/**
 * The job of a protocol that a REF names, brought to where its record proves it to be. A handle that the ledger has
 * never seen is imported once the gateway has confirmed that it knows it (design 1).
 * @throws MgwError('usage') where the job is one of another protocol or gateway, or the REF is no handle; exit 9 where
 * the gateway does not know the handle, 3 where it refuses the key, 6 where it does not answer.
 */
export async function jobFor(ref: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
  const found = await findJob(deps.ledger, ref, protocol.name);
  if (found === undefined) return importHandle(ref, protocol, deps);
  const job = await reconcile(deps.ledger, found, (reply, body) =>
    protocol.readSubmission(reply, (body ?? {}) as JsonObject),
  );
  if (job.protocol !== protocol.name)
    throw usageError(`${ref} is a job of ${job.protocol}: use mgw video ${job.protocol}.`);
  if (job.base_url !== '' && !isSameGateway(job.base_url, deps.gateway))
    throw usageError(`${ref} was submitted to ${job.base_url}, not to ${deps.gateway}; choose that gateway.`);
  return job;
}

async function importHandle(handle: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
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

// Nothing but the task's own state confirms that there is one.
async function confirmed(handle: string, protocol: Protocol, deps: JobDeps): Promise<Observation> {
  checkHandle(handle, protocol);
  for (let tries = 0; ; tries += 1) {
    const { verdict } = await query(handle, undefined, protocol, deps);
    if (verdict.kind === 'observation') return verdict;
    const { code, message, requestId, retryAfterMs } = verdict.failure;
    const isLast = verdict.kind !== 'again' || verdict.isWell === true || tries >= deps.retries;
    if (isLast) {
      const isOpen = verdict.kind === 'again' && verdict.isWell !== true;
      const exit = verdict.kind === 'unauthorized' ? 'auth' : isOpen ? 'unavailable' : 'incomplete';
      const text = isOpen
        ? message
        : `No job here is called ${handle}, and the gateway does not know it: ${message}`;
      throw new MgwError(isOpen || exit === 'auth' ? code : 'not_found', text, {
        exit,
        retry: isOpen ? 'safe' : 'never',
        next: ['mgw', 'jobs', 'ls'],
        requestId,
      });
    }
    await deps.clock.sleep(backoffMs(tries, { floorMs: retryAfterMs }), deps.signals.soft);
  }
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
