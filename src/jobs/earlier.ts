import { MgwError } from '../errors.ts';
import { isSettled, lostFingerprint, type Job } from '../job.ts';
import { canonicalJson, isObject, type Json } from '../json.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { recordedBody, type Order } from './order.ts';
import { isAlive } from '../ledger/owner.ts';
import { shownState } from './settle.ts';

/**
 * The earlier job that the same command carries on with (design 4): one that is open and whose run ended before
 * it delivered, or one that is `unknown` and so blocks. A run that is alive elsewhere and a command that ended
 * well make a second take: undefined. A speech stream that came to no good end blocks too, until a newer take stands.
 */
export async function findEarlier(ledger: Ledger, fingerprint: string): Promise<Job | undefined> {
  let newest = true;
  for (const id of await ledger.lookup('fingerprint', fingerprint)) {
    const job = await ledger.read(id);
    if (job === undefined || !concerns(job, fingerprint)) continue;
    if (wasCutOff(job) ? newest : carriesOn(job)) return job;
    if (job.handle !== undefined) newest = false;
  }
  return undefined;
}

/**
 * True for a speech stream that began, was billed, and came to no good end: it cannot be taken up again, and is
 * not paid for again by itself (design 8).
 */
export function wasCutOff(job: Job): boolean {
  if (job.protocol !== 'tts' || job.handle === undefined || isRunning(job)) return false;
  return job.state !== 'succeeded';
}

function isRunning(job: Job): boolean {
  return job.record.runs.some(({ owner }) => isAlive(owner));
}

// A damaged record has lost its fingerprint; it was found by the index, and it blocks.
function concerns(job: Job, fingerprint: string): boolean {
  return job.record.fingerprint === fingerprint || job.record.fingerprint === lostFingerprint;
}

function carriesOn(job: Job): boolean {
  if (shownState(job) === 'unknown') return true;
  if (isRunning(job)) return false;
  if (job.state === 'failed' || job.state === 'rejected') return false;
  return !isSettled(job);
}

/** The claim that a `--key` stands for. */
export function keyClaim(key: string): string {
  return `key.${key}`;
}

/**
 * The job that a `--key` names, or undefined where the name is free.
 * @throws MgwError('conflict') where the key names another body, showing what differs; MgwError('submit_unknown')
 * where the record behind the key cannot be read.
 */
export async function findByKey(
  ledger: Ledger,
  key: string,
  fingerprint: string,
  order: Order,
): Promise<Job | undefined> {
  const claim = await ledger.claimed(keyClaim(key));
  if (claim === undefined) return undefined;
  const [id = '', claimedFingerprint] = claim.split(' ');
  const job = await ledger.read(id);
  if (job === undefined || claimedFingerprint === undefined) throw lostRecord(key, id);
  if (claimedFingerprint !== fingerprint) throw conflict(key, job, order);
  return job;
}

function lostRecord(key: string, id: string): MgwError {
  const text = `The record of the job that --key ${key} names${id && ` (${id})`} is lost or damaged, so nothing tells whether it was paid for. It is not sent again; use another key if you are sure.`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: ['mgw', 'jobs', 'ls'] });
}

function conflict(key: string, job: Job, order: Order): MgwError {
  const changes = differences(job.request as Json, recordedBody(order.body).request).slice(0, 8);
  const what = changes.length > 0 ? changes.join('; ') : 'the gateway, the account or the protocol';
  const text = `--key ${key} names job ${job.id}, which was submitted with other contents: ${what}. A key names one submission for ever; choose another key.`;
  return new MgwError('conflict', text, { next: ['mgw', 'jobs', 'show', job.id] });
}

function differences(before: Json | undefined, now: Json | undefined, path = ''): string[] {
  if (canonicalJson(before) === canonicalJson(now)) return [];
  if (isObject(before) && isObject(now)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
    return names.flatMap((name) =>
      differences(before[name], now[name], path === '' ? name : `${path}.${name}`),
    );
  }
  return [`${path || 'body'} was ${shown(before)}, is ${shown(now)}`];
}

function shown(value: Json | undefined): string {
  return value === undefined ? 'absent' : JSON.stringify(value).slice(0, 80);
}
