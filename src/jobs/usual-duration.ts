import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { sizeOf } from '../protocols/requested-value.ts';

const maxRead = 100;
const maxAlike = 40;
/** Jobs of the same size are preferred if there are at least this many. */
const minSameSize = 3;
// A job that was left alone and queried hours later says nothing about the model.
const maxDurationMs = 3_600_000;

const known = new WeakMap<Ledger, Map<string, Promise<number | undefined>>>();

/**
 * Returns how long jobs like this one usually take from submission to result, in ms: the median of earlier jobs of the
 * same model at the same gateway, and of the same size if there are enough. Undefined if there are none. Reads at most
 * the newest hundred records, once per process for all jobs that are alike.
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
