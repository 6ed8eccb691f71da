import { messageOf, MgwError, usageError } from '../errors.ts';
import { backoffMs } from '../http/retry.ts';
import { type Job, type JobKind, lostFingerprint } from '../job.ts';
import { jobIdPattern, type Ids } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { printableLine } from '../printable.ts';
import type { Observation, Protocol } from '../protocols/protocol.ts';
import { isSameGateway, type JobDeps } from './order.ts';
import { query, recordObservation } from './observe.ts';
import { isRunning, isUnaccepted } from './reconcile.ts';
import { findJobById, follow } from '../ledger/chain.ts';
import { noSuchJob, resolveCommand, showCommand } from './errors.ts';

const keyPattern = /^[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}$/;

/** Describes what {@link isKeyName} allows. */
export const keyNameRules =
  '1 to 128 letters (a to z, A to Z), digits and _ . @ : + -, beginning with a letter, digit or _, without ..';

/** Whether a name can be a key: it is safe in a script, a file name and a log. */
export function isKeyName(name: string): boolean {
  return keyPattern.test(name) && !name.includes('..');
}

/** Refuses an invalid key, `last`, and a key together with `--new`. @throws MgwError('usage'). */
export function checkKeyName(key: string | undefined, fresh: boolean | undefined): void {
  if (key === undefined) return;
  if (fresh) throw usageError('--key and --new cannot be combined: a key permanently names one submission.');
  if (key === 'last') throw usageError('--key: last is not allowed, because @last is the newest job.');
  if (isKeyName(key)) return;
  const displayKey = key === '' ? 'an empty name' : printableLine(key, 60);
  throw usageError(`--key: ${displayKey} is not allowed; allowed: ${keyNameRules}`);
}

/**
 * Finds the job that a REF names in the ledger. A REF is a job id or a unique part of one, `@key`, `@last`, or a
 * handle. If a protocol is given, `@last` is the newest job of that protocol. Undefined if nothing matches.
 * @param gateway the configured gateway, whose job is preferred if several gateways have a task with the handle
 * @throws MgwError('usage') if a part or a handle matches several jobs, or there is no job for a job id, `@key` or
 * `@last`.
 */
export async function findJob(
  ledger: Ledger,
  ref: string,
  protocol?: JobKind,
  gateway?: string,
): Promise<Job | undefined> {
  if (ref === '@last') return lastJob(ledger, protocol);
  if (ref.startsWith('@')) return (await keyedJob(ledger, ref.slice(1))) ?? noSuchJob(ref);
  if (jobIdPattern.test(ref)) return (await lostJob(ledger, ref)) ?? noSuchJob(ref);
  const job = (await byHandle(ledger, ref, protocol, gateway)) ?? (await byPart(ledger, ref));
  return job === undefined && ref.startsWith('job_') ? noSuchJob(ref) : job;
}

/**
 * Returns the job that a key names; undefined if the key is free or its job was removed or never created.
 * @throws MgwError('submit_unknown') if the job's record is lost.
 */
export async function namedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  return (await findKey(ledger, key)).job;
}

/** Like {@link namedJob}, and whether the key was ever claimed. */
export async function findKey(ledger: Ledger, key: string): Promise<{ job?: Job; isClaimed: boolean }> {
  let latest: Job | undefined;
  let isClaimed = false;
  const chainEnd = await follow(
    ledger,
    { key, fingerprint: lostFingerprint },
    ({ job, claimState, holder }) => {
      if (claimState === 'lost') throw lostRecord(`the job with the key ${key}`, holder.job);
      isClaimed = true;
      latest = job;
      return claimState === 'exists' || claimState === 'not-created';
    },
  );
  if (chainEnd?.isFree === false) throw lostClaim(chainEnd.name, key);
  return { isClaimed, ...(latest !== undefined && { job: latest }) };
}

/**
 * Returns the job with the given id. If the record is lost and the job may have been paid for, creates a new record.
 * The job can then be shown, removed and resolved like any other. Undefined if the ledger has no trace of the job.
 * @throws MgwError('local_io') if the record cannot be created.
 */
async function lostJob(ledger: Ledger, id: string): Promise<Job | undefined> {
  const lookup = await findJobById(ledger, id);
  if (lookup.claimState !== 'lost') return lookup.job;
  await ledger.create(id, [undefined]);
  return ledger.read(id);
}

/** Exit 7: a claim belongs to a job whose record is lost, so it is unknown whether the job was paid for. */
export function lostRecord(subject: string, id: string): MgwError {
  const text = `The record of ${subject} (${id}) is lost, so the job may have been accepted and charged. It is not sent again. Find out whether the task exists, then resolve the job.`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: resolveCommand({ id }) });
}

/**
 * Exit 7: a claim is damaged, and no job identifies its owner.
 * @param key the key that was claimed, if any
 */
export function lostClaim(name: string, key?: string): MgwError {
  const advice = key === undefined ? '--new submits it anyway.' : 'A different --key submits it anyway.';
  const text = `The claim ${name} is damaged, so a submission may have been accepted and charged. It is not sent again. ${advice}`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: ['mgw', 'jobs', 'ls'] });
}

/**
 * Returns the error (exit 2) for a key that belongs to a job with a different request. The error lists the differences.
 * If the job was certainly never sent, `next` removes the job, which frees the key.
 */
export function keyConflict(key: string, job: Job, changes: readonly string[]): MgwError {
  const { attempts, damaged } = job.record;
  const isPrepared = job.state === 'prepared' && isUnaccepted(job) && !isRunning(job);
  const isNeverSent = isPrepared && attempts === 0 && damaged === 0;
  const [past, advice, next] = isNeverSent
    ? ['was never sent and has', 'Remove the job, or choose', ['mgw', 'jobs', 'rm', job.id]]
    : ['was submitted with', 'Choose', showCommand(job)];
  const text = `The key ${key} belongs to job ${job.id}, which ${past} a different request: ${changes.join('; ')}. A key permanently names one submission. ${advice} another key.`;
  return new MgwError('conflict', text, { next, job });
}

/** One of a batch row's jobs. Each job is paid for and replaces the previous one. */
export interface Retry {
  /** The position among the row's jobs, starting at 1. */
  number: number;
  /** The job's key: the row's key, then `KEY/2`, `KEY/3` … */
  key: string;
  /** Undefined if the job does not exist yet. */
  job?: Job;
}

/** Returns the key of a row's n-th job. */
export function keyOfRetry(key: string, number: number): string {
  return number === 1 ? key : `${key}/${number}`;
}

/** A row's latest accepted job, and the row's last job if it is a later one that was refused or never sent. */
export type LatestRetry = Retry & { later?: Retry };

/**
 * Returns the latest job for a row's key that was, or may have been, accepted. If there is none, returns the row's last
 * job, or number 1 without a job.
 * @throws MgwError('submit_unknown') if the record of one of the row's jobs is lost.
 */
export async function latestRetry(ledger: Ledger, key: string): Promise<LatestRetry> {
  const firstTwo = await Promise.all([1, 2].map((number) => findKey(ledger, keyOfRetry(key, number))));
  let last: Retry = { number: 1, key };
  let accepted: Retry | undefined;
  for (let number = 1; ; number += 1) {
    const retryKey = keyOfRetry(key, number);
    const { job, isClaimed } = firstTwo[number - 1] ?? (await findKey(ledger, retryKey));
    // The user may have removed any of the jobs, including the first.
    if (!isClaimed && number > 1) break;
    if (job === undefined) continue;
    last = { number, key: retryKey, job };
    if (!isUnaccepted(job)) accepted = last;
  }
  return accepted === undefined || accepted === last ? last : { ...accepted, later: last };
}

// Only keys of batch rows contain a slash. The key of a retried row names its latest accepted job.
async function keyedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  return key.includes('/') ? (await latestRetry(ledger, key)).job : namedJob(ledger, key);
}

async function lastJob(ledger: Ledger, protocol: JobKind | undefined): Promise<Job> {
  const matches = (job: Job): boolean => protocol === undefined || job.protocol === protocol;
  return (await firstJob(ledger, await ledger.listed(), matches)) ?? noSuchJob('@last');
}

/** Returns the newest job that has made a video; undefined if there is none. */
export async function newestVideo(ledger: Ledger): Promise<Job | undefined> {
  const isVideo = ({ protocol, state }: Job): boolean => protocol !== 'tts' && state === 'succeeded';
  return firstJob(ledger, await ledger.listed(), isVideo);
}

/** Returns the newest video job with a model; undefined if there is none. */
export async function newestWithModel(ledger: Ledger, model: string): Promise<Job | undefined> {
  return firstJob(ledger, await ledger.listed(), (job) => job.protocol !== 'tts' && job.model === model);
}

// Several gateways, or several protocols of one gateway, may use the same task id. If several jobs have the same task,
// returns the newest.
async function byHandle(
  ledger: Ledger,
  handle: string,
  protocol: JobKind | undefined,
  gateway: string | undefined,
): Promise<Job | undefined> {
  const candidates: Job[] = [];
  for (const id of await ledger.lookup('handle', handle)) {
    const job = await ledger.read(id);
    if (job?.handle === handle) candidates.push(job);
  }
  const atGateway = candidates.filter((job) => gateway !== undefined && isSameGateway(job.base_url, gateway));
  const preferred = atGateway.length > 0 ? atGateway : candidates;
  const ofProtocol = preferred.filter((job) => job.protocol === protocol);
  const [newest, ...others] = ofProtocol.length > 0 ? ofProtocol : preferred;
  const isSameTask = ({ base_url, protocol: otherProtocol }: Job): boolean =>
    otherProtocol === newest?.protocol && isSameGateway(base_url, newest.base_url);
  if (newest === undefined || others.every(isSameTask)) return newest;
  const names = [newest, ...others].map(
    (job) => `${job.id} (Protocol ${job.protocol.toUpperCase()}, ${job.base_url})`,
  );
  throw usageError(`${handle} is the handle of ${names.length} jobs: ${names.slice(0, 5).join(', ')}`);
}

async function byPart(ledger: Ledger, part: string): Promise<Job | undefined> {
  if (!/^[0-9a-z_]{4,18}$/.test(part)) return undefined;
  const ids = (await ledger.ids()).filter((id) => id.includes(part));
  if (ids.length > 1)
    throw usageError(`${part} is part of ${ids.length} job ids: ${ids.slice(0, 5).join(', ')}`);
  return ids[0] === undefined ? undefined : ledger.read(ids[0]);
}

async function firstJob(ledger: Ledger, ids: Ids, matches: (job: Job) => boolean): Promise<Job | undefined> {
  for (let index = 0; index < ids.length; index += 1) {
    const job = await ledger.read(ids.at(index) ?? '');
    if (job !== undefined && matches(job)) return job;
  }
  return undefined;
}

/** Returns the job that a REF names, as {@link findJob} does. @throws MgwError('usage') if there is none. */
export async function recordedJob(ledger: Ledger, ref: string, gateway?: string): Promise<Job> {
  return (await findJob(ledger, ref, undefined, gateway)) ?? noSuchJob(ref);
}

/**
 * Imports a handle that is not in the ledger, once the gateway has confirmed it (design 1).
 * @throws MgwError('usage') if the handle is invalid in the protocol; exit 9 if the gateway does not know the handle, 3
 * if it refuses the key, 6 if it does not respond.
 */
export async function importHandle(handle: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
  const observation = await confirmHandle(handle, protocol, deps);
  const { ledger, clock, gateway, account } = deps;
  const id = await ledger.newId(clock.now());
  await ledger.create(id, [
    { type: 'prepared', protocol: protocol.name, base_url: gateway, fingerprint: '', account },
    { type: 'accepted', handle },
  ]);
  const job = (await ledger.read(id)) ?? noSuchJob(handle);
  return recordObservation(job, observation, deps);
}

// Queries the task's state, because only a state confirms that the task exists.
async function confirmHandle(handle: string, protocol: Protocol, deps: JobDeps): Promise<Observation> {
  checkHandle(handle, protocol);
  for (let tries = 0; ; tries += 1) {
    const { verdict } = await query(handle, undefined, protocol, deps);
    if (verdict.kind === 'observation') return verdict;
    const { code, message, requestId, retryAfterMs } = verdict.failure;
    const pauseMs = backoffMs(tries, { floorMs: retryAfterMs });
    const isLate = pauseMs >= (deps.client.deadline?.remainingMs() ?? Infinity);
    const isLast =
      verdict.kind !== 'again' || verdict.hasNoStateYet === true || isLate || tries >= deps.retries;
    if (isLast) {
      const isTemporary = verdict.kind === 'again' && verdict.hasNoStateYet !== true;
      const exit = verdict.kind === 'unauthorized' ? 'auth' : isTemporary ? 'unavailable' : 'incomplete';
      const text = isTemporary
        ? message
        : `No such job: ${handle}. The gateway does not know that handle: ${message}`;
      throw new MgwError(isTemporary || exit === 'auth' ? code : 'not_found', text, {
        exit,
        retry: isTemporary ? 'safe' : 'never',
        ...(!isTemporary && { next: ['mgw', 'jobs', 'ls'] }),
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
      `No such job: ${ref}. It is not a handle of Protocol ${protocol.name.toUpperCase()}: ${messageOf(error)}`,
    );
  }
}
