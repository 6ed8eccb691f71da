import { MgwError } from '../errors.ts';
import { isOpenFor, lostFingerprint, type Job, type JobEvent } from '../job.ts';
import type { Json } from '../json.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { JobDeps } from './deps.ts';
import { differences } from './differences.ts';
import { showCommand } from './errors.ts';
import { keyClaim, lostRecord, namedJob } from './named-job.ts';
import { fingerprintOf, formerFingerprintOf, recordedBody, type Order } from './order.ts';
import { shownState } from './reconcile.ts';

/**
 * The job of an order: the one that an earlier run of the same command left open, the one that its `--key` names,
 * or a new one. It is recorded, with this run, before anything is sent (design 4). Where a new one is a second take of
 * an earlier job, that is said first.
 * @throws MgwError: exit 2 where the key names another body, 7 where its record is lost, 10 where nothing can be
 * recorded, and what `beforeSending` throws.
 */
export async function createOrResume(order: Order, deps: JobDeps, began: JobEvent): Promise<Job> {
  const { ledger } = deps;
  const found = await findReady(order, deps);
  const own = found.job ?? (await create(order, deps, found, began));
  const job = order.key === undefined ? own : await claimKey(order.key, own, order, deps);
  const isNew = found.job === undefined && job === own;
  // What is in doubt stays as it is, readable or not: this run will only say so.
  if (isNew || shownState(job) === 'unknown') return job;
  await ledger.append(job.id, began);
  return (await ledger.read(job.id)) ?? job;
}

/** What a submission is known by. */
type Submission = Pick<
  Order,
  'protocol' | 'body' | 'asked' | 'variant' | 'fingerprint' | 'key' | 'fresh' | 'goal' | 'isOneShot'
>;

/** What the ledger knows of a submission: the job to carry on with, or the one of which it is a second take. */
interface Found {
  job?: Job;
  secondTakeOf?: Job;
}

// What stands in the way of sending may be the result that another process of the same key has just put there.
async function findReady(order: Order, deps: JobDeps): Promise<Found> {
  const found = await find(order, deps);
  // A run that is joined has the output; it may have put its result there already.
  if (found.job !== undefined && (!mayBeSent(found.job) || isJoined(found.job, order.goal))) return found;
  try {
    await order.beforeSending?.();
    return found;
  } catch (error) {
    const last = await find(order, deps);
    if (last.job === undefined || mayBeSent(last.job)) throw error;
    return last;
  }
}

function mayBeSent(job: Job): boolean {
  return job.handle === undefined && shownState(job) !== 'unknown';
}

async function find(order: Order, deps: JobDeps): Promise<Found> {
  const named = order.key === undefined ? undefined : await findByKey(deps.ledger, order.key, order, deps);
  return named === undefined ? findResumable(order, deps) : { job: named };
}

// The fingerprints under which a submission may have been recorded, the present one first.
function* fingerprintsOf(
  order: Pick<Order, 'protocol' | 'body' | 'asked' | 'variant' | 'fingerprint'>,
  { gateway, account }: Pick<JobDeps, 'gateway' | 'account'>,
): Generator<string> {
  yield order.fingerprint ?? fingerprintOf(order, gateway);
  yield formerFingerprintOf(order, gateway, account);
}

/** True where a job of this fingerprint is one of the submission. */
export function isFingerprintOf(
  fingerprint: string,
  order: Parameters<typeof fingerprintsOf>[0],
  deps: Pick<JobDeps, 'gateway' | 'account'>,
): boolean {
  for (const known of fingerprintsOf(order, deps)) if (known === fingerprint) return true;
  return false;
}

/**
 * Looks for the earlier job that the same command carries on with (design 4): one that is open for its goal and whose
 * run ended, or one that is `unknown` and so blocks. A run that is alive elsewhere and a command that ended well make a
 * second take.
 * @throws MgwError('submit_unknown') where the record of an earlier job is lost.
 */
export async function findResumable(order: Submission, deps: JobDeps): Promise<Found> {
  let secondTakeOf: Job | undefined;
  for (const fingerprint of fingerprintsOf(order, deps)) {
    for (const id of await deps.ledger.lookup('fingerprint', fingerprint)) {
      const job = await deps.ledger.read(id);
      if (job !== undefined && !concerns(job, fingerprint)) continue;
      if (job === undefined) {
        // Whoever came second with a key removes the job that it had made, perhaps since this one looked.
        const isLost = !order.fresh && (await deps.ledger.lookup('fingerprint', fingerprint)).includes(id);
        if (isLost) throw lostRecord(`an earlier job of this submission (${id})`);
        continue;
      }
      if (!order.fresh && carriesOn(job, order, secondTakeOf === undefined)) return { job };
      if (job.handle !== undefined) secondTakeOf ??= job;
    }
  }
  return { secondTakeOf };
}

/** The jobs of one fingerprint, the newest first. */
export async function jobsOf(fingerprint: string, { ledger }: JobDeps): Promise<Job[]> {
  const ids = await ledger.lookup('fingerprint', fingerprint);
  const jobs = await Promise.all(ids.map((id) => ledger.read(id)));
  return jobs.filter((job) => job !== undefined && job.record.fingerprint === fingerprint) as Job[];
}

// A damaged record has lost its fingerprint; it was found by the index, and it blocks.
function concerns(job: Job, fingerprint: string): boolean {
  return job.record.fingerprint === fingerprint || job.record.fingerprint === lostFingerprint;
}

function carriesOn(
  job: Job,
  { key, goal, isOneShot }: Pick<Order, 'key' | 'goal' | 'isOneShot'>,
  isNewest: boolean,
): boolean {
  const isUnknown = shownState(job) === 'unknown';
  // Two names are two jobs; a doubt about a job without one is a doubt about any.
  if (job.key !== key && key !== undefined) return isUnknown && job.key === undefined;
  if (isUnknown) return true;
  if (isRunning(job)) return isJoined(job, goal);
  // Paid for, and neither to be taken up again nor to be paid for again by itself (design 8).
  if (isOneShot && job.handle !== undefined && job.state !== 'succeeded') return isNewest;
  return job.state !== 'failed' && job.state !== 'rejected' && isOpenFor(job, goal);
}

function isJoined({ record: { runs, lifeOf } }: Job, { output }: Order['goal']): boolean {
  if (output === undefined || output === '-') return false;
  return runs.some((run) => run.command === 'submit' && run.output === output && lifeOf(run.owner) === 'alive');
}

/** True where a run of the command that paid for a job is shown to be alive. */
export function isRunning({ record: { runs, lifeOf } }: Job): boolean {
  return runs.some(({ command, owner }) => command === 'submit' && lifeOf(owner) === 'alive');
}

async function create(order: Order, deps: JobDeps, { secondTakeOf }: Found, began: JobEvent): Promise<Job> {
  const { ledger } = deps;
  if (secondTakeOf !== undefined && order.key === undefined)
    deps.note(
      `This is a second take of ${secondTakeOf.id} (${placeOf(secondTakeOf)}), and is paid for again.`,
    );
  const id = await ledger.newId(deps.clock.now());
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: order.protocol,
    base_url: deps.gateway,
    fingerprint: order.fingerprint ?? fingerprintOf(order, deps.gateway),
    account: deps.account,
    model: order.model,
    key: order.key,
    ...(order.tags?.length && { tags: order.tags }),
    ...recordedBody(order.body),
  };
  await ledger.create(id, [prepared, began]);
  const job = await ledger.read(id);
  if (job === undefined)
    throw new MgwError('local_io', `The record of job ${id} vanished.`, { retry: 'safe' });
  return job;
}

function placeOf({ state, files }: Job): string {
  const [file] = files;
  return file === undefined ? state : `${state}, saved as ${file.path}`;
}

/**
 * The job that a `--key` names, or undefined where the name is free. A claim that was lost is made again.
 * @throws MgwError('conflict') where the key names another body, showing what differs; MgwError('submit_unknown')
 * where the record of its job is lost.
 */
async function findByKey(ledger: Ledger, key: string, order: Order, deps: JobDeps): Promise<Job | undefined> {
  const job = await namedJob(ledger, key);
  if (job === undefined) return undefined;
  const { fingerprint } = job.record;
  if (!isFingerprintOf(fingerprint, order, deps)) {
    if (fingerprint === lostFingerprint) throw lostRecord(`the job that the key ${key} names (${job.id})`);
    throw conflict(key, job, order);
  }
  return job;
}

// Exactly one of any number of processes names the key's job; the others drop theirs, which nobody has sent.
async function claimKey(key: string, job: Job, order: Order, deps: JobDeps): Promise<Job> {
  const { ledger } = deps;
  if (job.key !== key) return job;
  const claim = `${job.id} ${job.record.fingerprint}`;
  const holder = await ledger.claim(keyClaim(key), claim);
  if (holder === undefined || holder === claim || job.record.attempts > 0) return job;
  await ledger.remove(job.id);
  return (await findByKey(ledger, key, order, deps)) ?? job;
}

function conflict(key: string, job: Job, order: Order): MgwError {
  const changes = differences(job.request as Json, recordedBody(order.body).request).slice(0, 8);
  const what = changes.length > 0 ? changes.join('; ') : 'the gateway or the protocol';
  const text = `The key ${key} names job ${job.id}, which was submitted with other contents: ${what}. A key names one submission for ever; choose another key.`;
  return new MgwError('conflict', text, { next: showCommand(job), job });
}
