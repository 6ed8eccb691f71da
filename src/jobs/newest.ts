import type { Job } from '../job.ts';
import { damagedJob } from '../ledger/event-log.ts';
import { type Ids, timeOf } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { shownState } from './reconcile.ts';
import { missingVideos, sizeOf } from '../protocols/requested-value.ts';

/** The filters of a job list. A job must match all of them. */
export interface JobFilter {
  state?: readonly string[] | undefined;
  protocol?: string | undefined;
  model?: readonly string[] | undefined;
  /** ISO 8601 time: only jobs created since then. */
  since?: string | undefined;
  /** Keys. `boat-*` matches all keys that start with `boat-`. */
  key?: readonly string[] | undefined;
  batch?: string | undefined;
  /** Only jobs with a file that differs from its request. */
  mismatched?: boolean | undefined;
}

/**
 * Returns the newest jobs that match, and the number of older ids that were not read. Reads only as many records as it
 * needs, so listing is fast in a ledger of any size.
 */
export async function newestJobs(
  ledger: Ledger,
  options: JobFilter,
  limit: number,
): Promise<{ jobs: Job[]; more: number }> {
  const jobs: Job[] = [];
  for await (const { job, older } of matchingJobs(ledger, options, Math.min(limit, maxAtOnce)))
    if (jobs.push(job) >= limit) return { jobs, more: older };
  return { jobs, more: 0 };
}

// Maximum number of records to read at once. A shared ledger reads them with one query.
const maxAtOnce = 200;

/**
 * Yields the jobs that match a filter, newest first, each with the number of older ids. Reads `maxReads` records at a
 * time.
 */
export async function* matchingJobs(
  ledger: Ledger,
  options: JobFilter,
  maxReads = maxAtOnce,
): AsyncGenerator<{ job: Job; older: number }> {
  const { since, state } = options;
  const ids = await ledger.listed({ excludeSucceeded: state?.includes('succeeded') === false });
  const candidateCount = since === undefined ? ids.length : countSince(ids, since);
  for (let start = 0; start < candidateCount; start += maxReads) {
    const batch = ids.slice(start, Math.min(candidateCount, start + maxReads));
    const jobs = await Promise.all(batch.map((id) => readListed(ledger, id)));
    for (const [index, job] of jobs.entries())
      if (job !== undefined && matchesFilter(job, options))
        yield { job, older: candidateCount - start - index - 1 };
  }
}

// A job whose record is lost may have been paid for, so it is listed.
async function readListed(ledger: Ledger, id: string): Promise<Job | undefined> {
  const job = await ledger.read(id);
  if (job !== undefined) return job;
  return (await ledger.claimState(id)) === 'lost' ? damagedJob(id, '', []) : undefined;
}

// Ids sort by time. A job may be recorded up to this many ms after its id was created.
const idLeadMs = 60_000;

function countSince(ids: Ids, since: string): number {
  const earliest = Date.parse(since) - idLeadMs;
  let [count, end] = [0, ids.length];
  while (count < end) {
    const middle = (count + end) >>> 1;
    if (timeOf(ids.at(middle) ?? '') < earliest) end = middle;
    else count = middle + 1;
  }
  return count;
}

function matchesFilter(
  job: Job,
  { state, protocol, model, since, key, batch, mismatched }: JobFilter,
): boolean {
  if (protocol !== undefined && job.protocol !== protocol) return false;
  if (model !== undefined && !model.includes(job.model ?? '')) return false;
  if (since !== undefined && job.created_at < since) return false;
  if (mismatched && !isMismatched(job)) return false;
  if (batch !== undefined && job.key?.startsWith(`${batch}/`) !== true) return false;
  if (key !== undefined && !key.some((pattern) => matchesKey(job.key, pattern))) return false;
  return state === undefined || state.includes(shownState(job));
}

function isMismatched(job: Job): boolean {
  return job.files.some(({ mismatches }) => mismatches !== undefined) || missingVideos(job) > 0;
}

function matchesKey(key: string | undefined, pattern: string): boolean {
  return pattern.endsWith('*') ? key?.startsWith(pattern.slice(0, -1)) === true : key === pattern;
}

const maxRead = 100;
const maxSimilar = 40;
/** Jobs of the same size are preferred if there are at least this many. */
const minSameSize = 3;
// If a job is first queried hours after its submission, its duration does not reflect the model's speed.
const maxDurationMs = 3_600_000;

const durationCache = new WeakMap<Ledger, Map<string, Promise<number | undefined>>>();

/**
 * Returns how long jobs like this one usually take from submission to result, in ms. This is the median of earlier jobs
 * with the same model and gateway, and with the same size if there are enough. Undefined if there are none. Reads at
 * most the newest 100 records, once per process for all similar jobs.
 */
export function usualDurationMs(ledger: Ledger, job: Job): Promise<number | undefined> {
  const durations = durationCache.get(ledger) ?? new Map<string, Promise<number | undefined>>();
  durationCache.set(ledger, durations);
  const cacheKey = [job.base_url, job.protocol, job.model, sizeOf(job)].join('\n');
  const duration = durations.get(cacheKey) ?? readDuration(ledger, job);
  durations.set(cacheKey, duration);
  return duration;
}

async function readDuration(ledger: Ledger, job: Job): Promise<number | undefined> {
  const similarJobs: { ms: number; size: string }[] = [];
  for (const id of (await ledger.listed()).slice(0, maxRead)) {
    if (similarJobs.length === maxSimilar) break;
    const other = await ledger.read(id);
    const ms = other && isSimilar(other, job) ? durationOf(other) : undefined;
    if (other !== undefined && ms !== undefined) similarJobs.push({ ms, size: sizeOf(other) });
  }
  const size = sizeOf(job);
  const sameSize = similarJobs.filter((other) => other.size === size);
  const durations = (sameSize.length >= minSameSize ? sameSize : similarJobs).map(({ ms }) => ms);
  return durations.sort((one, other) => one - other)[Math.floor(durations.length / 2)];
}

function isSimilar(one: Job, other: Job): boolean {
  return one.protocol === other.protocol && one.model === other.model && one.base_url === other.base_url;
}

function durationOf({ state, submitted_at = '', finished_at = '' }: Job): number | undefined {
  const ms = Date.parse(finished_at) - Date.parse(submitted_at);
  return state === 'succeeded' && ms > 0 && ms <= maxDurationMs ? ms : undefined;
}
