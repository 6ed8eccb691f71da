import type { Job, Owner } from '../job.ts';
import { lostFingerprint } from '../job.ts';
import type { Ledger } from './ledger.ts';
import { holderText, names, readHolder, type Holder } from './names.ts';

type Claims = Pick<Ledger, 'claim' | 'claimed'>;

/** The data that determines a submission's first name. */
export interface NamedSubmission {
  key?: string | undefined;
  fingerprint: string;
}

/** A claim's job, or the reason for its absence. */
export type FoundJob =
  | { job: Job; claimState: 'exists' }
  /** `not-created`: the job has not been created. `lost`: its record is lost, and the job may have been paid for. */
  | { job?: undefined; claimState: 'removed' | 'not-created' | 'lost' };

/** One job in a submission's chain of claims. */
export type Link = FoundJob & {
  name: string;
  /** The claim's content. If the claim is damaged, the content is derived from the jobs. */
  holder: Holder;
};

/** The end of a chain: a free name, or a claim that cannot be read. */
export interface ChainEnd {
  name: string;
  isFree: boolean;
}

/**
 * Follows a submission's jobs, starting at its first name. Each job's id determines the next name. Stops after the
 * first link for which `isLast` returns true.
 */
export async function follow(
  ledger: Ledger,
  submission: NamedSubmission,
  isLast: (link: Link) => boolean | Promise<boolean>,
): Promise<ChainEnd | undefined> {
  let lastId: string | undefined;
  for (let name = names.first(submission); ;) {
    const text = await ledger.claimed(name);
    if (text === undefined) return { name, isFree: true };
    const holder = readHolder(text) ?? (await holderByJobs(ledger, submission, lastId));
    if (holder === undefined) return { name, isFree: false };
    const found = await findJobById(ledger, holder.job);
    // A removed job that was imported again may have lost its key to another job.
    const hasOtherKey = found.job !== undefined && !hasKey(found.job, submission.key);
    if (await isLast({ name, holder, ...(hasOtherKey ? { claimState: 'removed' } : found) }))
      return undefined;
    lastId = holder.job;
    name = names.after(holder.job);
  }
}

// A damaged record may have lost the key.
function hasKey({ key: ownKey, record }: Job, key: string | undefined): boolean {
  return ownKey === key || record.fingerprint === lostFingerprint;
}

/** Returns the submissions that the claims name. Jobs whose records are damaged or lost have no other names. */
export async function* claimedSubmissions(ledger: Ledger): AsyncGenerator<NamedSubmission> {
  for (const name of await ledger.firstNames()) {
    const holder = readHolder((await ledger.claimed(name)) ?? '');
    if (name.startsWith('take.')) yield { fingerprint: name.slice('take.'.length) };
    else yield { key: name.slice('key.'.length), fingerprint: holder?.fingerprint ?? lostFingerprint };
  }
}

/** Returns the submissions of the jobs that have claims, by the jobs' ids. */
export async function claimedNames(ledger: Ledger): Promise<Map<string, NamedSubmission>> {
  const found = new Map<string, NamedSubmission>();
  for await (const submission of claimedSubmissions(ledger))
    await follow(ledger, submission, ({ holder, claimState }) => {
      if (claimState === 'exists' || claimState === 'lost') found.set(holder.job, submission);
      return false;
    });
  return found;
}

/** Returns the job with the given id, or the reason for its absence. */
export async function findJobById(ledger: Ledger, id: string): Promise<FoundJob> {
  for (;;) {
    const job = await ledger.read(id);
    if (job !== undefined) return { job, claimState: 'exists' };
    const claimState = await ledger.claimState(id);
    if (claimState !== 'exists') return { claimState };
  }
}

// Returns a holder for the submission's first job that was created after `last`.
async function holderByJobs(
  ledger: Ledger,
  { key, fingerprint }: NamedSubmission,
  last = '',
): Promise<Holder | undefined> {
  for (const id of (await ledger.ids()).reverse()) {
    if (id <= last) continue;
    const job = await ledger.read(id);
    if (job === undefined || job.key !== key) continue;
    if (key === undefined && job.record.fingerprint !== fingerprint) continue;
    return { job: id, fingerprint: job.record.fingerprint, owner: { pid: 0, start: '', host: '' } };
  }
  return undefined;
}

/**
 * Claims the names of a job that has no claims, because it was imported or its claims were lost. Any number of
 * processes may do so concurrently, with the same result.
 * @param from a name in the chain before the job's name, if one is known
 * @returns the name that follows the job's name in the chain
 */
export async function enrol(claims: Claims, job: Job, owner: Owner, from?: string): Promise<string> {
  const { fingerprint, attempts, sentBy = owner } = job.record;
  if (attempts > 0) await claims.claim(names.attempt(job.id, 1), JSON.stringify(sentBy));
  const next = names.after(job.id);
  if (fingerprint === '' || fingerprint === lostFingerprint) return next;
  const text = holderText({ job: job.id, fingerprint, owner });
  for (let name = from ?? names.first({ key: job.key, fingerprint }); ;) {
    const holder = readHolder((await claims.claim(name, text)) ?? '');
    if (holder === undefined || holder.job === job.id) break;
    name = names.after(holder.job);
  }
  await claimEarlierRetries(claims, job, owner);
  return next;
}

/**
 * Claims the keys of a batch row's earlier retries, which may have been removed or not imported. Otherwise, a search
 * for the row's latest job would end there. The claims name this job, whose key is a different one, so the keys count
 * as removed.
 */
export async function claimEarlierRetries(claims: Claims, job: Job, owner: Owner): Promise<void> {
  const [, row, number] = /^([^/]+\/.+)\/(\d{1,2})$/.exec(job.key ?? '') ?? [];
  const text = holderText({ job: job.id, fingerprint: job.record.fingerprint, owner });
  for (let earlier = 2; earlier < Number(number); earlier += 1)
    await claims.claim(`key.${row}/${earlier}`, text);
}

/** Claims the names of all jobs. The jobs must be sorted by id. */
export async function enrolAll(
  claims: Claims,
  jobs: Iterable<Job> | AsyncIterable<Job>,
  owner: Owner,
): Promise<void> {
  const ends = new Map<string, string>();
  for await (const job of jobs) {
    const first = names.first({ key: job.key, fingerprint: job.record.fingerprint });
    ends.set(first, await enrol(claims, job, owner, ends.get(first)));
  }
}
