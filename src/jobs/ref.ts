import { messageOf, MgwError, usageError } from '../errors.ts';
import { backoffMs } from '../http/retry.ts';
import { type Job, type JobKind, lostFingerprint } from '../job.ts';
import { jobIdForm, type Ids } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { printableLine } from '../printable.ts';
import type { Observation, Protocol } from '../protocols/protocol.ts';
import { isSameGateway, type JobDeps, recordedBody } from './order.ts';
import { query, recordSeen } from './observe.ts';
import { type Json, canonicalJson, isObject } from '../json.ts';
import { findJobById, follow } from '../ledger/chain.ts';
import { noSuchJob, resolveCommand, showCommand } from './errors.ts';

const keyForm = /^[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}$/;

/** Describes what {@link isKeyName} allows. */
export const keyNameForm =
  '1 to 128 letters, digits and _ . @ : + -, beginning with a letter, digit or _, without ..';

/** Whether a name can be a key: it is safe in a script, a file name and a log. */
export function isKeyName(name: string): boolean {
  return keyForm.test(name) && !name.includes('..');
}

/** Refuses an invalid key, `last`, and a key together with `--new`. @throws MgwError('usage'). */
export function checkKeyName(key: string | undefined, fresh: boolean | undefined): void {
  if (key === undefined) return;
  if (fresh)
    throw usageError('--key and --new contradict each other: a key permanently names one submission.');
  if (key === 'last') throw usageError('--key: last is not allowed, because @last names the newest job.');
  if (isKeyName(key)) return;
  const shown = key === '' ? 'an empty name' : printableLine(key, 60);
  throw usageError(`--key: ${shown} is not allowed; allowed: ${keyNameForm}`);
}

/**
 * Finds the job of a REF in the ledger: a job id or a unique part of one, `@key`, `@last` (of the protocol, if one is
 * given), or a handle that the ledger knows. Undefined if nothing matches.
 * @param gateway the configured gateway: its job is preferred if a handle names tasks of several
 * @throws MgwError('usage') if a part or a handle matches several jobs, or a REF in the form of mgw's own ids names no
 * job.
 */
export async function findJob(
  ledger: Ledger,
  ref: string,
  protocol?: JobKind,
  gateway?: string,
): Promise<Job | undefined> {
  if (ref === '@last') return lastJob(ledger, protocol);
  if (ref.startsWith('@')) return (await keyedJob(ledger, ref.slice(1))) ?? noSuchJob(ref);
  if (jobIdForm.test(ref)) return (await lostJob(ledger, ref)) ?? noSuchJob(ref);
  const found = (await byHandle(ledger, ref, protocol, gateway)) ?? (await byPart(ledger, ref));
  return found === undefined && ref.startsWith('job_') ? noSuchJob(ref) : found;
}

/**
 * The job that a key names in a ledger; undefined if the name is free, or its job was never created.
 * @throws MgwError('submit_unknown') if its record is lost.
 */
export async function namedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  let named: Job | undefined;
  const end = await follow(ledger, { key, fingerprint: lostFingerprint }, ({ job, fate, holder }) => {
    if (fate === 'lost') throw lostRecord(`the job that the key ${key} names`, holder.job);
    named = job;
    return fate === 'there' || fate === 'unmade';
  });
  if (end?.isFree === false) throw lostClaim(end.name, key);
  return named;
}

/**
 * Returns a job whose record is lost and that may have been paid for. It can be shown, removed and resolved like any
 * other. Undefined if the ledger knows nothing of it.
 * @throws MgwError('local_io') if it cannot be recorded.
 */
async function lostJob(ledger: Ledger, id: string): Promise<Job | undefined> {
  const found = await findJobById(ledger, id);
  if (found.fate !== 'lost') return found.job;
  await ledger.create(id, [undefined]);
  return ledger.read(id);
}

/** Exit 7: a claim names a job whose record is lost, so it is unknown whether it was paid for. */
export function lostRecord(what: string, id: string): MgwError {
  const text = `The record of ${what} (${id}) is lost, so it may have been accepted and charged. It is not sent again. Find out whether the task exists, then resolve the job.`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: resolveCommand({ id }) });
}

/**
 * Exit 7: a claim is damaged, and no job identifies its owner.
 * @param key the key that was claimed, if any
 */
export function lostClaim(name: string, key?: string): MgwError {
  const way = key === undefined ? '--new submits it anyway.' : 'Another --key submits it anyway.';
  const text = `The claim ${name} is damaged, so a submission may have been accepted and charged. It is not sent again. ${way}`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: ['mgw', 'jobs', 'ls'] });
}

/** Returns the error (exit 2) for a key that names a job with another body. It lists the differences. */
export function keyConflict(key: string, job: Job, body: Json): MgwError {
  const changes = differences(job.request as Json, recordedBody(body).request).slice(0, 8);
  const what = changes.length > 0 ? changes.join('; ') : 'the gateway, the protocol or the file format';
  const text = `The key ${key} names job ${job.id}, which was submitted with other contents: ${what}. A key names one submission permanently. Choose another key.`;
  return new MgwError('conflict', text, { next: showCommand(job), job });
}

/**
 * Returns the differences between two bodies, a line for each field: `duration was 5, is 8`. Does not show the values
 * of fields for which `isHidden` returns true.
 */
export function differences(
  before: Json | undefined,
  now: Json | undefined,
  isHidden: (path: string) => boolean = () => false,
  path = '',
): string[] {
  if (canonicalJson(before) === canonicalJson(now)) return [];
  if (isObject(before) && isObject(now)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
    return names.flatMap((name) =>
      differences(before[name], now[name], isHidden, path === '' ? name : `${path}.${name}`),
    );
  }
  if (isHidden(path)) return [`${path || 'body'} differs`];
  return [`${path || 'body'} was ${shown(before)}, is ${shown(now)}`];
}

function shown(value: Json | undefined): string {
  return value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80);
}

/** One of the jobs of a batch's row. Each is paid for, and replaces the one before. */
export interface Retry {
  /** Counted from 1. */
  number: number;
  /** The key of its job: the row's own key, then `KEY/2`, `KEY/3` … */
  key: string;
  /** Undefined if the job does not exist yet. */
  job?: Job;
}

/** Returns the key of a row's n-th job. */
export function keyOfRetry(key: string, number: number): string {
  return number === 1 ? key : `${key}/${number}`;
}

/**
 * Returns the latest job of a row's key; number 1 if there is none.
 * @throws MgwError('submit_unknown') if the record of one is lost.
 */
export async function latestRetry(ledger: Ledger, key: string): Promise<Retry> {
  // The second job counts even if a person removed the first.
  const [job, second] = await Promise.all([namedJob(ledger, key), namedJob(ledger, keyOfRetry(key, 2))]);
  let latest: Retry = { number: 1, key, job };
  for (let next = second; next !== undefined;) {
    const number = latest.number + 1;
    latest = { number, key: keyOfRetry(key, number), job: next };
    next = await namedJob(ledger, keyOfRetry(key, number + 1));
  }
  return latest;
}

// Only the keys of a batch's rows have a slash. The key of a row that was retried names its latest job.
async function keyedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  return key.includes('/') ? (await latestRetry(ledger, key)).job : namedJob(ledger, key);
}

async function lastJob(ledger: Ledger, protocol: JobKind | undefined): Promise<Job> {
  const fits = (job: Job): boolean => protocol === undefined || job.protocol === protocol;
  return (await firstJob(ledger, await ledger.listed(), fits)) ?? noSuchJob('@last');
}

// Gateways, and the protocols of one, may number their tasks alike. Of several jobs of one task, the newest is returned.
async function byHandle(
  ledger: Ledger,
  handle: string,
  protocol: JobKind | undefined,
  gateway: string | undefined,
): Promise<Job | undefined> {
  const known: Job[] = [];
  for (const id of await ledger.lookup('handle', handle)) {
    const job = await ledger.read(id);
    if (job?.handle === handle) known.push(job);
  }
  const here = known.filter((job) => gateway !== undefined && isSameGateway(job.base_url, gateway));
  const near = here.length > 0 ? here : known;
  const fitting = near.filter((job) => job.protocol === protocol);
  const [found, ...others] = fitting.length > 0 ? fitting : near;
  const isSameTask = ({ base_url, protocol: own }: Job): boolean =>
    own === found?.protocol && isSameGateway(base_url, found.base_url);
  if (found === undefined || others.every(isSameTask)) return found;
  const names = [found, ...others].map((job) => `${job.id} (Protocol ${job.protocol}, ${job.base_url})`);
  throw usageError(`${handle} is the handle of ${names.length} jobs: ${names.slice(0, 5).join(', ')}`);
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
export async function recordedJob(ledger: Ledger, ref: string, gateway?: string): Promise<Job> {
  return (await findJob(ledger, ref, undefined, gateway)) ?? noSuchJob(ref);
}

/**
 * Imports a handle that the ledger has never seen, once the gateway has confirmed it (design 1).
 * @throws MgwError('usage') if it is not a handle of the protocol; exit 9 if the gateway does not know it, 3 if it
 * refuses the key, 6 if it does not respond.
 */
export async function importHandle(handle: string, protocol: Protocol, deps: JobDeps): Promise<Job> {
  const seen = await confirmed(handle, protocol, deps);
  const { ledger, clock, gateway, account } = deps;
  const id = await ledger.newId(clock.now());
  await ledger.create(id, [
    { type: 'prepared', protocol: protocol.name, base_url: gateway, fingerprint: '', account },
    { type: 'accepted', handle },
  ]);
  const job = (await ledger.read(id)) ?? noSuchJob(handle);
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
      `No such job: ${ref}. It is not a handle of Protocol ${protocol.name}: ${messageOf(error)}`,
    );
  }
}
