import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';

const mostRead = 100;
const enough = 20;
// A job that was left alone and asked for hours later says nothing about the model.
const longestWatchedMs = 3_600_000;

/**
 * How long the last jobs of a job's model took from their submission to their success: the median in ms, or
 * undefined where none is known. Reads the newest hundred records at most, and stops at twenty that count.
 */
export async function usualDurationMs(ledger: Ledger, job: Job): Promise<number | undefined> {
  const durations: number[] = [];
  const ids = await ledger.ids();
  for (const id of ids.slice(0, mostRead)) {
    if (durations.length === enough) break;
    const other = await ledger.read(id);
    if (other === undefined || !isAlike(other, job)) continue;
    const duration = durationMs(other);
    if (duration > 0 && duration <= longestWatchedMs) durations.push(duration);
  }
  return median(durations);
}

function isAlike(one: Job, other: Job): boolean {
  return one.protocol === other.protocol && one.model === other.model && one.base_url === other.base_url;
}

// NaN where one of the times is not known.
function durationMs({ state, submitted_at = '', finished_at = '' }: Job): number {
  return state === 'succeeded' ? Date.parse(finished_at) - Date.parse(submitted_at) : NaN;
}

function median(values: number[]): number | undefined {
  return values.sort((one, other) => one - other)[Math.floor(values.length / 2)];
}
