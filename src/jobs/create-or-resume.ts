import { MgwError } from '../errors.ts';
import { lostFingerprint, type Job, type JobEvent } from '../job.ts';
import { findJobById, follow, type FoundJob, type Link } from '../ledger/chain.ts';
import { holderText, readHolder } from '../ledger/names.ts';
import { type JobDeps, fingerprintOf, recordedBody, type Order, checkNoSecret } from './order.ts';
import { interruptedError, otherKeyError, showCommand } from './errors.ts';
import {
  continuesWith,
  doubtAbout,
  isDeliveredTo,
  isRunningFor,
  uncertainRuns,
  waitForRenewal,
  withReadReply,
  type UncertainRuns,
} from './liveness.ts';
import { type Began, continueRun } from './run.ts';
import { changesFrom } from './differences.ts';
import { keyConflict, lostClaim, lostRecord } from './ref.ts';
import { visibleFiles } from './output.ts';
import { isRunning, shownState } from './reconcile.ts';

/** The part of an order that identifies a submission. */
type Submission = Pick<Order, 'protocol' | 'body' | 'fresh' | 'goal'> & Partial<Order>;

type Deps = Pick<JobDeps, 'ledger' | 'gateway' | 'startedAt'>;

/** What the ledger contains about a submission. */
interface LookupResult {
  /** The job to continue with. */
  job?: Job;
  /** Set if another process is claiming the key for a different submission whose job does not exist yet. */
  conflict?: MgwError;
  /** The earlier job, if a new job would be its second take. */
  secondTakeOf?: Job;
  /** A job to continue with, unless its processes on other machines are alive. */
  uncertain?: UncertainRuns;
  /** A job with the same request but a different key. The caller may not know about this job. */
  doubt?: { job: Job; about: 'sending' | 'unreported' };
  /** The ids of the jobs that had been delivered to the output when the command began. */
  deliveredBefore?: ReadonlySet<string>;
  /**
   * `name`: the name that a new job claims; absent if it claims none. `id`: the new job's id, if the name is already
   * claimed for an id without a job.
   */
  newClaim: { name?: string; id?: string };
}

/**
 * Finds an order's job, or creates one. Uses an existing job if an earlier run of the same command left it open, or if
 * it has the key given by `--key`. Also uses a job that another process makes for the same output file, if that process
 * is alive or has delivered the file since this command began. Records the job, with this run, before anything is sent
 * (design 4). Claims a name with the new job's id first, so that only one of several processes creates a job and the
 * others find it. If the new job is a second take, notifies the user first. If an earlier run on another machine may be
 * alive, waits until its lease is renewed or ends.
 * @throws MgwError: exit 2 if the key belongs to a different request, or if the key or the output contains the API key;
 * exit 7 if the record of an earlier job is lost; exit 8 at the deadline; exit 10 if nothing can be recorded; or the
 * error from `checkBeforePaying`.
 */
export async function createOrResume(order: Order, deps: JobDeps, began: Began): Promise<Job> {
  checkNoSecret('--key', order.key, deps.redact);
  checkNoSecret('--output', order.goal.output, deps.redact);
  let lookCount = 0;
  let deliveredBefore: LookupResult['deliveredBefore'];
  const aliveOwners = new Set<string>();
  for (;;) {
    const lookup = await findEarlier(order, deps, aliveOwners, deliveredBefore);
    deliveredBefore ??= lookup.deliveredBefore;
    if (lookup.uncertain !== undefined) {
      await waitForRenewal(lookup.uncertain, aliveOwners, order.deadline, deps);
      continue;
    }
    if (lookup.doubt !== undefined) {
      const { job, about } = lookup.doubt;
      if (about === 'unreported' || (order.blockedByAnyDoubt?.remainingMs() ?? 0) <= 0)
        throw otherKeyError(job, about);
      await pause(deps);
      continue;
    }
    if (lookup.conflict !== undefined) {
      if (lookCount === maxLooks) throw lookup.conflict;
      lookCount += 1;
      await pause(deps);
      continue;
    }
    if (needsOutput(lookup.job, order)) {
      try {
        await order.checkBeforePaying?.();
      } catch (error) {
        // The output may exist because another process has just saved the result there.
        const { job } = await findEarlier(order, deps, aliveOwners, deliveredBefore);
        if (needsOutput(job, order)) throw error;
        continue;
      }
    }
    // This run only reports a job in doubt.
    if (lookup.job !== undefined && shownState(lookup.job) === 'unknown') return lookup.job;
    const job = await (lookup.job === undefined
      ? create(order, lookup, deps, began)
      : continueRun(lookup.job, order.deadline, deps, began));
    if (job !== undefined) return job;
  }
}

// Maximum number of lookups before a conflict is reported. A process claims a name shortly before it creates the job.
const maxLooks = 40;

async function pause({ ledger, clock, signals }: JobDeps): Promise<void> {
  await ledger.flush();
  await clock.sleep(50, signals.soft).catch(() => {
    throw interruptedError(signals.soft, undefined, 'no');
  });
}

// Whether this run may send the job. If so, it must check the output first. A run that joins another run skips the
// check, because the other run has checked the output.
function needsOutput(job: Job | undefined, { goal }: Order): boolean {
  if (job === undefined) return true;
  return job.handle === undefined && shownState(job) !== 'unknown' && !isRunningFor(job, goal);
}

// Returns undefined if another process was faster: the caller then looks for that process's job.
async function create(
  order: Order,
  { newClaim, secondTakeOf }: LookupResult,
  deps: JobDeps,
  began: Began,
): Promise<Job | undefined> {
  const { ledger, gateway, account } = deps;
  const fingerprint = fingerprintOf(order, gateway);
  const id = newClaim.id ?? (await ledger.newId(deps.clock.now()));
  if (newClaim.name !== undefined) {
    const { owner } = await deps.lease();
    const holder = await ledger.claim(newClaim.name, holderText({ job: id, fingerprint, owner }));
    // Another process may have claimed the name for this id. The claim is durable by now, so the job may be created.
    if (holder !== undefined && readHolder(holder)?.job !== id) return undefined;
  }
  if (secondTakeOf !== undefined) deps.note(secondTakeNote(secondTakeOf));
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: order.protocol,
    base_url: gateway,
    fingerprint,
    account,
    model: order.model && deps.redact(order.model),
    key: order.key,
    variant: order.variant,
    endpoint: order.endpoint,
    ...(order.tags?.length && { tags: order.tags.map(deps.redact) }),
    ...recordedBody(order.body, deps.redact),
  };
  return (await ledger.create(id, [prepared, began])) ? ledger.read(id) : undefined;
}

function secondTakeNote(job: Job): string {
  const { id, state } = job;
  if (shownState(job) === 'unknown')
    return `This is a second take of ${id}, which may have been accepted and charged. The new take is charged too.`;
  const [file] = visibleFiles(job);
  const place = file === undefined ? state : `${state}, saved as ${file.path}`;
  return `This is a second take of ${id} (${place}). It is charged again.`;
}

/**
 * Finds the earlier job that the same command continues (design 4). This is a job that is open for its goal and whose
 * run has ended, or an `unknown` job that blocks the submission. It may also be a job that another process makes for
 * the same file, or delivered to that file after the command began.
 * @throws MgwError('submit_unknown') if the record of an earlier job is lost; MgwError('conflict') if the key belongs
 * to a different request.
 * @param aliveOwners leases on other machines that were renewed in the meantime
 * @param deliveredBefore the jobs that had been delivered to the output when the command began; determined if absent
 */
export async function findEarlier(
  order: Submission,
  deps: Deps,
  aliveOwners: ReadonlySet<string> = new Set(),
  deliveredBefore?: LookupResult['deliveredBefore'],
): Promise<LookupResult> {
  const keyLookup = order.key === undefined ? undefined : await findByKey(order.key, order, deps);
  if (keyLookup?.job !== undefined || keyLookup?.conflict !== undefined) return keyLookup;
  const fingerprint = fingerprintOf(order, deps.gateway);
  const { jobs, lostId, newClaim } = await findTakes(fingerprint, deps, order.fresh);
  if (lostId !== undefined && !order.fresh) throw lostRecord('an earlier job for this submission', lostId);
  const isDelivered = (job: Job, time?: number): boolean => isDeliveredTo(job, order.goal, time);
  deliveredBefore ??= new Set(jobs.filter((job) => isDelivered(job, deps.startedAt)).map(({ id }) => id));
  let secondTakeOf: Job | undefined;
  for (const recorded of jobs) {
    const job = await withReadReply(recorded, order, deps.ledger);
    const isNewest = secondTakeOf === undefined;
    const about = doubtAbout(job, order);
    if (about !== undefined) return { doubt: { job, about }, newClaim, deliveredBefore };
    // Different keys mean different jobs, even with the same output.
    const isSameVariant = job.record.variant === order.variant;
    // The claims do not lead to this job, because its claim was lost.
    if (isSameVariant && order.key !== undefined && job.key === order.key)
      return { job, newClaim, deliveredBefore };
    const isNew =
      isSameVariant && order.key === undefined && isDelivered(job) && !deliveredBefore.has(job.id);
    if (!order.fresh && (isNew || continuesWith(job, order, isNewest)))
      return { job, newClaim, deliveredBefore };
    const uncertain = order.fresh
      ? undefined
      : await uncertainRuns(job, order, isNewest, aliveOwners, deps.ledger);
    if (uncertain !== undefined) return { uncertain, newClaim, deliveredBefore };
    const isPaid = isSameVariant && (job.handle !== undefined || isRunning(job));
    // Several keys are several deliberate jobs.
    const isAnnounced = order.key === undefined || job.key === undefined;
    if (isAnnounced && (isPaid || (order.fresh && shownState(job) === 'unknown'))) secondTakeOf ??= job;
  }
  return { secondTakeOf, newClaim: keyLookup?.newClaim ?? newClaim, deliveredBefore };
}

/** Returns the jobs with the given fingerprint, newest first. */
export async function jobsOf(fingerprint: string, deps: Deps): Promise<Job[]> {
  return (await findTakes(fingerprint, deps)).jobs;
}

// Returns the jobs in the chain of claims and the jobs that only the index lists. The latter have a key, or a record
// that lost its first lines.
async function findTakes(
  fingerprint: string,
  { ledger }: Deps,
  fresh?: boolean,
): Promise<{ jobs: Job[]; lostId?: string; newClaim: LookupResult['newClaim'] }> {
  const links = new Map<string, FoundJob>();
  let unusedClaim: LookupResult['newClaim'] | undefined;
  const chainEnd = await follow(ledger, { fingerprint }, (link) => {
    links.set(link.holder.job, link);
    unusedClaim = link.claimState === 'not-created' ? { name: link.name, id: link.holder.job } : undefined;
    return unusedClaim !== undefined;
  });
  const isDamaged = chainEnd?.isFree === false;
  if (isDamaged && !fresh) throw lostClaim(chainEnd.name);
  for (const id of await ledger.lookup('fingerprint', fingerprint))
    if (!links.has(id)) links.set(id, await findJobById(ledger, id));
  const ids = [...links.keys()].sort().reverse();
  const jobs = ids.flatMap((id) => {
    const job = links.get(id)?.job;
    return job !== undefined && matchesFingerprint(job, fingerprint) ? [job] : [];
  });
  const lostId = ids.find((id) => links.get(id)?.claimState === 'lost');
  // The new job does not claim a name: later searches treat the job as the holder of the damaged claim.
  if (isDamaged) return { jobs, lostId, newClaim: {} };
  return { jobs, lostId, newClaim: unusedClaim ?? { name: chainEnd?.name ?? '' } };
}

// A damaged record that has lost its fingerprint was found through its claim, so it blocks the submission.
function matchesFingerprint({ record }: Job, fingerprint: string): boolean {
  return record.fingerprint === fingerprint || record.fingerprint === lostFingerprint;
}

// Returns the job that a key names. If that job was removed, the key belongs to the next job in its chain.
async function findByKey(key: string, order: Submission, deps: Deps): Promise<LookupResult> {
  const { ledger, gateway } = deps;
  const fingerprint = fingerprintOf(order, gateway);
  let lookup: LookupResult | undefined;
  const chainEnd = await follow(ledger, { key, fingerprint }, async (link) => {
    lookup = await lookUpLink(link, key, fingerprint, order, deps);
    return lookup !== undefined;
  });
  if (chainEnd?.isFree === false) throw lostClaim(chainEnd.name, key);
  return lookup ?? { newClaim: { name: chainEnd?.name ?? '' } };
}

// Returns undefined if the key belongs to the next job in the chain.
async function lookUpLink(
  { name, job, claimState, holder }: Link,
  key: string,
  fingerprint: string,
  order: Submission,
  { ledger, gateway }: Deps,
): Promise<LookupResult | undefined> {
  const newClaim = { name, id: holder.job };
  if (claimState === 'removed') return undefined;
  if (claimState === 'lost') throw lostRecord(`the job with the key ${key}`, holder.job);
  if (claimState === 'not-created' && holder.fingerprint !== fingerprint) {
    // If the claiming process died before it created the job, the id is free. Otherwise the key will soon belong to a
    // different submission.
    if ((await ledger.lifeOf(holder.owner)) === 'dead' && (await ledger.forbid(holder.job))) return undefined;
    const text = `The key ${key} is being claimed for a different submission (${holder.job}). Choose another key.`;
    return { newClaim, conflict: new MgwError('conflict', text, { next: showCommand({ id: holder.job }) }) };
  }
  if (job === undefined) return { newClaim };
  // A removed job may have been imported again with a different body.
  const isLost = job.record.fingerprint === lostFingerprint;
  const recordedFingerprint = isLost ? holder.fingerprint : job.record.fingerprint;
  if (recordedFingerprint !== fingerprint || (!isLost && job.record.variant !== order.variant)) {
    const changes = changesFrom(job, order, gateway);
    if (isLost || changes.length > 0) throw keyConflict(key, job, changes);
  }
  return { job, newClaim };
}
