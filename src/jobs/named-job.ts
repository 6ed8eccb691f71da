import { MgwError } from '../errors.ts';
import type { Job } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';

/** The claim that a `--key` stands for. */
export function keyClaim(key: string): string {
  return `key.${key}`;
}

/**
 * The job that a key names in a ledger, undefined where the name is free.
 * @throws MgwError('submit_unknown') where its record is lost.
 */
export async function namedJob(ledger: Ledger, key: string): Promise<Job | undefined> {
  const claim = await ledger.claimed(keyClaim(key));
  const id = claim?.split(' ')[0] ?? '';
  if (id !== '') {
    const job = await ledger.read(id);
    if (job === undefined) throw lostRecord(`the job that the key ${key} names (${id})`);
    return job;
  }
  const jobs = await Promise.all((await ledger.lookup('key', key)).map((each) => ledger.read(each)));
  const own = jobs.filter((job) => job?.key === key);
  // Of processes that began together only one has sent; a claim whose content is damaged names none of them.
  const first =
    own.find((job) => job !== undefined && job.record.attempts > 0) ??
    (claim === undefined ? own[0] : undefined);
  if (first === undefined && claim !== undefined) throw lostRecord(`the job that the key ${key} names`);
  return first;
}

/** Exit 7: what a key names was begun, and nothing tells what became of it. */
export function lostRecord(what: string): MgwError {
  const text = `The record of ${what} is lost or damaged, so nothing tells whether it was paid for. It is not sent again.`;
  return new MgwError('submit_unknown', text, { charged: 'maybe', next: ['mgw', 'jobs', 'ls'] });
}
