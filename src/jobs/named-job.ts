import { MgwError } from '../errors.ts';
import { lostFingerprint, type Job } from '../job.ts';
import { type Json, canonicalJson, isObject } from '../json.ts';
import { findJobById, follow } from '../ledger/chain.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { resolveCommand, showCommand } from './errors.ts';
import { recordedBody } from './order.ts';

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
export async function lostJob(ledger: Ledger, id: string): Promise<Job | undefined> {
  const found = await findJobById(ledger, id);
  if (found.fate !== 'lost') return found.job;
  await ledger.create(id, [undefined]);
  return ledger.read(id);
}

/** Exit 7: a claim names a job whose record is lost, so it is unknown whether it was paid for. */
export function lostRecord(what: string, id: string): MgwError {
  const text = `The record of ${what} (${id}) is lost, so it may have been accepted and charged. It is not sent again. Find out whether the task exists, then say so.`;
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

/** Builds the error of a key that names a job with another body: exit 2 with what differs. */
export function keyConflict(key: string, job: Job, body: Json): MgwError {
  const changes = differences(job.request as Json, recordedBody(body).request).slice(0, 8);
  const what = changes.length > 0 ? changes.join('; ') : 'the gateway or the protocol';
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
  if (isHidden(path)) return [`${path || 'body'} is another`];
  return [`${path || 'body'} was ${shown(before)}, is ${shown(now)}`];
}

function shown(value: Json | undefined): string {
  return value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80);
}

/** One of the jobs of a batch's row. Each is paid for, and replaces the one before. */
export interface Retry {
  /** From 1. */
  number: number;
  /** The key of its job: the row's own key, then `KEY/2`, `KEY/3` … */
  key: string;
  /** Undefined if it does not exist yet. */
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
