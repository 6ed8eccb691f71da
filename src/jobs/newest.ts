import type { Job } from '../job.ts';
import { type Ids, timeOf } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { shownState } from './reconcile.ts';
import { sizeOf } from '../protocols/requested-value.ts';

/**
 * The filters of a list of jobs; a job must match all of them.
 */
export interface JobChoice {
  state?: readonly string[] | undefined;
  protocol?: string | undefined;
  model?: readonly string[] | undefined;
  /** ISO 8601 time: only jobs created since then. */
  since?: string | undefined;
  /** Keys; `boat-*` matches all that start with `boat-`. */
  key?: readonly string[] | undefined;
  batch?: string | undefined;
  /** Only jobs with a file that differs from its request. */
  mismatched?: boolean | undefined;
}

/**
 * Returns the newest jobs that match, and the number of older ids that were not read. Reads only as many records as it
 * needs, so that listing is quick in a ledger of any size.
 */
export async function newestJobs(
  ledger: Ledger,
  options: JobChoice,
  limit: number,
): Promise<{ shown: Job[]; more: number }> {
  const shown: Job[] = [];
  for await (const { job, older } of chosenJobs(ledger, options, Math.min(limit, maxAtOnce)))
    if (shown.push(job) >= limit) return { shown, more: older };
  return { shown, more: 0 };
}

// The number of records that are read together. A shared ledger reads them with one query.
const maxAtOnce = 200;

/**
 * Yields the jobs that match a choice, newest first, each with the number of older ids. Reads `atOnce` records at a
 * time.
 */
export async function* chosenJobs(
  ledger: Ledger,
  options: JobChoice,
  atOnce = maxAtOnce,
): AsyncGenerator<{ job: Job; older: number }> {
  const { since, state } = options;
  const ids = await ledger.listed({ leaveOutSucceeded: state?.includes('succeeded') === false });
  const counted = since === undefined ? ids.length : countSince(ids, since);
  for (let start = 0; start < counted; start += atOnce) {
    const some = ids.slice(start, Math.min(counted, start + atOnce));
    const jobs = await Promise.all(some.map((id) => ledger.read(id)));
    for (const [index, job] of jobs.entries())
      if (job !== undefined && isChosen(job, options)) yield { job, older: counted - start - index - 1 };
  }
}

// Ids sort by time, and a job is recorded a moment after its id is made.
const idLeadMs = 60_000;

function countSince(ids: Ids, since: string): number {
  const first = Date.parse(since) - idLeadMs;
  let [count, end] = [0, ids.length];
  while (count < end) {
    const middle = (count + end) >>> 1;
    if (timeOf(ids.at(middle) ?? '') < first) end = middle;
    else count = middle + 1;
  }
  return count;
}

function isChosen(job: Job, { state, protocol, model, since, key, batch, mismatched }: JobChoice): boolean {
  if (protocol !== undefined && job.protocol !== protocol) return false;
  if (model !== undefined && !model.includes(job.model ?? '')) return false;
  if (since !== undefined && job.created_at < since) return false;
  if (mismatched && !job.files.some(({ mismatches }) => mismatches !== undefined)) return false;
  if (batch !== undefined && job.key?.startsWith(`${batch}/`) !== true) return false;
  if (key !== undefined && !key.some((pattern) => isNamed(job.key, pattern))) return false;
  return state === undefined || state.includes(shownState(job));
}

function isNamed(key: string | undefined, pattern: string): boolean {
  return pattern.endsWith('*') ? key?.startsWith(pattern.slice(0, -1)) === true : key === pattern;
}

const maxRead = 100;
const maxAlike = 40;
/** Jobs of the same size are preferred if there are at least this many. */
const minSameSize = 3;
// A job that was left alone and queried hours later says nothing about the model.
const maxDurationMs = 3_600_000;

const known = new WeakMap<Ledger, Map<string, Promise<number | undefined>>>();

/**
 * Returns how long jobs like this one usually take from submission to result, in ms. This is the median of earlier jobs
 * of the same model at the same gateway, and of the same size if there are enough. Undefined if there are none. Reads
 * at most the newest hundred records, once per process for all jobs that are alike.
 */
export function usualDurationMs(ledger: Ledger, job: Job): Promise<number | undefined> {
  const durations = known.get(ledger) ?? new Map<string, Promise<number | undefined>>();
  known.set(ledger, durations);
  const name = [job.base_url, job.protocol, job.model, sizeOf(job)].join('\n');
  const duration = durations.get(name) ?? readDuration(ledger, job);
  durations.set(name, duration);
  return duration;
}

async function readDuration(ledger: Ledger, job: Job): Promise<number | undefined> {
  const alike: { ms: number; size: string }[] = [];
  for (const id of (await ledger.listed()).slice(0, maxRead)) {
    if (alike.length === maxAlike) break;
    const other = await ledger.read(id);
    const ms = other && isAlike(other, job) ? durationOf(other) : undefined;
    if (other !== undefined && ms !== undefined) alike.push({ ms, size: sizeOf(other) });
  }
  const size = sizeOf(job);
  const same = alike.filter((other) => other.size === size);
  const durations = (same.length >= minSameSize ? same : alike).map(({ ms }) => ms);
  return durations.sort((one, other) => one - other)[Math.floor(durations.length / 2)];
}

function isAlike(one: Job, other: Job): boolean {
  return one.protocol === other.protocol && one.model === other.model && one.base_url === other.base_url;
}

function durationOf({ state, submitted_at = '', finished_at = '' }: Job): number | undefined {
  const ms = Date.parse(finished_at) - Date.parse(submitted_at);
  return state === 'succeeded' && ms > 0 && ms <= maxDurationMs ? ms : undefined;
}
