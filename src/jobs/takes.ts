import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { namedJob } from './named-job.ts';

/** One of the jobs that a row of a batch has had: each is paid for, and a later one takes the place of the one before. */
export interface Retry {
  /** From 1. */
  number: number;
  /** What names its job: the row's own key, then `KEY/2`, `KEY/3` … */
  key: string;
  /** Undefined if it does not exist yet. */
  job?: Job;
}

/** The key of a row's n-th take. */
export function takeKey(key: string, number: number): string {
  return number === 1 ? key : `${key}/${number}`;
}

/**
 * The latest take of a key; the first one if there is none.
 * @throws MgwError('submit_unknown') if the record of a take is lost.
 */
export async function latestRetry(ledger: Ledger, key: string): Promise<Retry> {
  let latest: Retry = { number: 1, key, job: await namedJob(ledger, key) };
  // A second take counts even if the first was removed by hand.
  for (let number = 2; ; number += 1) {
    const next = takeKey(key, number);
    const job = await namedJob(ledger, next);
    if (job === undefined) return latest;
    latest = { number, key: next, job };
  }
}
