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
  isRunning,
  uncertainRuns,
  waitForRenewal,
  withReadReply,
  type UncertainRuns,
} from './liveness.ts';
import { type Began, continueRun } from './run.ts';
import { keyConflict, lostClaim, lostRecord } from './ref.ts';
import { shownState } from './reconcile.ts';

/** The part of an order that identifies a submission. */
type Submission = Pick<Order, 'protocol' | 'body' | 'fresh' | 'goal'> & Partial<Order>;

type Deps = Pick<JobDeps, 'ledger' | 'gateway' | 'startedAt'>;

/** What the ledger knows about a submission. */
interface Earlier {
  /** The job to continue with. */
  job?: Job;
  /** Set if another process is claiming the key for another submission, whose job does not exist yet. */
  conflict?: MgwError;
  /** The earlier job, if a new one would be its second take. */
  secondTakeOf?: Job;
  /** A job to continue with, unless its processes on other machines are alive. */
  uncertain?: UncertainRuns;
  /** A job of the same request under another key, which the caller may not know of. */
  doubt?: { job: Job; about: 'sending' | 'untold' };
  /** The ids of the jobs that had been delivered to the output when the command began. */
  before?: ReadonlySet<string>;
  /**
   * The name that a new job claims, and its id if the name is already claimed for an id without a job. Empty if the new
   * job claims no name.
   */
  place: { name?: string; id?: string };
}

/**
 * Finds the job of an order, or creates one. An existing job is used if an earlier run of the same command left it
 * open, or if `--key` names it. It is also used if another process makes it for the same output file, and that process
 * is alive or delivered the file after this command began. The job is recorded, with this run, before anything is sent
 * (design 4). A name is claimed first, with the id of the job to create: of several processes only one creates a job,
 * and the others find it. If the new job is a second take of an earlier one, the user is told first. If an earlier run
 * on another machine may be alive, waits until its lease is renewed or ends.
 * @throws MgwError: exit 2 if the key names another body, or if the key or the output contains the API key; exit 7 if
 * the record of an earlier job is lost; exit 8 at the deadline; exit 10 if nothing can be recorded; and what
 * `beforeSending` throws.
 */
export async function createOrResume(order: Order, deps: JobDeps, began: Began): Promise<Job> {
  checkNoSecret('--key', order.key, deps.redact);
  checkNoSecret('--output', order.goal.output, deps.redact);
  let [isReady, looks] = [false, 0];
  let before: Earlier['before'];
  const alive = new Set<string>();
  for (;;) {
    const earlier = await findEarlier(order, deps, alive, before);
    before ??= earlier.before;
    if (earlier.uncertain !== undefined) {
      await waitForRenewal(earlier.uncertain, alive, order.deadline, deps);
      continue;
    }
    if (earlier.doubt !== undefined) {
      const { job, about } = earlier.doubt;
      if (about === 'untold' || (order.blockedByAnyDoubt?.remainingMs() ?? 0) <= 0)
        throw otherKeyError(job, about);
      await pause(deps);
      continue;
    }
    if (earlier.conflict !== undefined) {
      if (looks === maxLooks) throw earlier.conflict;
      looks += 1;
      await pause(deps);
      continue;
    }
    if (!isReady && needsPlace(earlier.job, order)) {
      try {
        await order.beforeSending?.();
        isReady = true;
      } catch (error) {
        // The output may exist because another process has just saved the result there.
        const { job } = await findEarlier(order, deps, alive, before);
        if (needsPlace(job, order)) throw error;
        continue;
      }
    }
    const job = await (earlier.job === undefined
      ? create(order, earlier, deps, began)
      : continueRun(earlier.job, order.deadline, deps, began));
    if (job !== undefined) return job;
  }
}

// How many times to look before reporting a conflict: a process claims a name a moment before it creates the job.
const maxLooks = 40;

async function pause({ ledger, clock, signals }: JobDeps): Promise<void> {
  await ledger.flush();
  await clock.sleep(50, signals.soft).catch(() => {
    throw interruptedError(signals.soft, undefined, 'no');
  });
}

// Whether this run may send the job and so needs the output. If it joins another run, that run has the output.
function needsPlace(job: Job | undefined, { goal }: Order): boolean {
  if (job === undefined) return true;
  return job.handle === undefined && shownState(job) !== 'unknown' && !isRunningFor(job, goal);
}

// Returns undefined if another process was quicker: the caller then looks for that process's job.
async function create(
  order: Order,
  { place, secondTakeOf }: Earlier,
  deps: JobDeps,
  began: Began,
): Promise<Job | undefined> {
  const { ledger, gateway, account } = deps;
  const fingerprint = fingerprintOf(order, gateway);
  const id = place.id ?? (await ledger.newId(deps.clock.now()));
  if (place.name !== undefined) {
    const { owner } = await deps.lease();
    const holder = await ledger.claim(place.name, holderText({ job: id, fingerprint, owner }));
    // Another process may have claimed the name for this id. The claim is durable by now, so the job may be created.
    const isOfId = place.id !== undefined && holder !== undefined && readHolder(holder)?.job === place.id;
    if (holder !== undefined && !isOfId) return undefined;
  }
  if (secondTakeOf !== undefined && order.key === undefined)
    deps.note(
      `This is a second take of ${secondTakeOf.id} (${placeOf(secondTakeOf)}), and is paid for again.`,
    );
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: order.protocol,
    base_url: gateway,
    fingerprint,
    account,
    model: order.model && deps.redact(order.model),
    key: order.key,
    variant: order.variant,
    ...(order.tags?.length && { tags: order.tags.map(deps.redact) }),
    ...recordedBody(order.body, deps.redact),
  };
  return (await ledger.create(id, [prepared, began])) ? ledger.read(id) : undefined;
}

function placeOf({ state, files }: Job): string {
  const [file] = files;
  return file === undefined ? state : `${state}, saved as ${file.path}`;
}

/**
 * Finds the earlier job that the same command continues with (design 4). This is a job that is open for its goal and
 * whose run has ended, or a job that is `unknown` and blocks the submission. It may also be a job that a living process
 * makes for the same file, or delivered there after the command began.
 * @throws MgwError('submit_unknown') if the record of an earlier job is lost; MgwError('conflict') if the key names
 * another body.
 * @param alive leases of other machines that were renewed in the meantime
 * @param before the jobs that had been delivered to the output when the command began; if absent, they are determined
 */
export async function findEarlier(
  order: Submission,
  deps: Deps,
  alive: ReadonlySet<string> = new Set(),
  before?: Earlier['before'],
): Promise<Earlier> {
  const named = order.key === undefined ? undefined : await findByKey(order.key, order, deps);
  if (named?.job !== undefined || named?.conflict !== undefined) return named;
  const fingerprint = fingerprintOf(order, deps.gateway);
  const { jobs, lost, place } = await takesOf(fingerprint, deps, order.fresh);
  if (lost !== undefined && !order.fresh) throw lostRecord('an earlier job of this submission', lost);
  const isDelivered = (job: Job, time?: number): boolean => isDeliveredTo(job, order.goal, time);
  before ??= new Set(jobs.filter((job) => isDelivered(job, deps.startedAt)).map(({ id }) => id));
  let secondTakeOf: Job | undefined;
  for (const found of jobs) {
    const job = await withReadReply(found, order, deps.ledger);
    const isNewest = secondTakeOf === undefined;
    const about = doubtAbout(job, order);
    if (about !== undefined) return { doubt: { job, about }, place, before };
    // Different keys mean different jobs, even with the same output.
    const isSameVariant = job.record.variant === order.variant;
    const isNew = isSameVariant && order.key === undefined && isDelivered(job) && !before.has(job.id);
    if (!order.fresh && (isNew || continuesWith(job, order, isNewest))) return { job, place, before };
    const uncertain = order.fresh ? undefined : await uncertainRuns(job, order, isNewest, alive, deps.ledger);
    if (uncertain !== undefined) return { uncertain, place, before };
    if (isSameVariant && (job.handle !== undefined || isRunning(job))) secondTakeOf ??= job;
  }
  return { secondTakeOf, place: named?.place ?? place, before };
}

/** The jobs of one fingerprint, newest first. */
export async function jobsOf(fingerprint: string, deps: Deps): Promise<Job[]> {
  return (await takesOf(fingerprint, deps)).jobs;
}

// Returns the jobs in the chain of claims, and those that only the index lists: jobs with a key, and jobs whose record
// has lost its beginning.
async function takesOf(
  fingerprint: string,
  { ledger }: Deps,
  fresh = false,
): Promise<{ jobs: Job[]; lost?: string; place: Earlier['place'] }> {
  const found = new Map<string, FoundJob>();
  let unmade: Earlier['place'] | undefined;
  const end = await follow(ledger, { fingerprint }, (link) => {
    found.set(link.holder.job, link);
    unmade = link.fate === 'unmade' ? { name: link.name, id: link.holder.job } : undefined;
    return unmade !== undefined;
  });
  const isDamaged = end?.isFree === false;
  if (isDamaged && !fresh) throw lostClaim(end.name);
  for (const id of await ledger.lookup('fingerprint', fingerprint))
    if (!found.has(id)) found.set(id, await findJobById(ledger, id));
  const known = [...found].sort(([one], [other]) => (one > other ? -1 : 1));
  const jobs = known.flatMap(([, { job }]) => (job !== undefined && concerns(job, fingerprint) ? [job] : []));
  const lost = known.find(([, { fate }]) => fate === 'lost')?.[0];
  // A new job claims no name: later searches treat the job as the holder of the damaged claim.
  if (isDamaged) return { jobs, lost, place: {} };
  return { jobs, lost, place: unmade ?? { name: end?.name ?? '' } };
}

// A damaged record without its fingerprint was found by its claim, and blocks the submission.
function concerns({ record }: Job, fingerprint: string): boolean {
  return record.fingerprint === fingerprint || record.fingerprint === lostFingerprint;
}

// Returns the job that a key names. A key whose job was removed names the next job of its chain.
async function findByKey(key: string, order: Submission, deps: Deps): Promise<Earlier> {
  const { ledger, gateway } = deps;
  const fingerprint = fingerprintOf(order, gateway);
  let found: Earlier | undefined;
  const end = await follow(ledger, { key, fingerprint }, async (link) => {
    found = await placeAt(link, key, fingerprint, order, deps);
    return found !== undefined;
  });
  if (end?.isFree === false) throw lostClaim(end.name, key);
  return found ?? { place: { name: end?.name ?? '' } };
}

// Returns undefined if the key names the next job of the chain.
async function placeAt(
  { name, job, fate, holder }: Link,
  key: string,
  fingerprint: string,
  order: Submission,
  { ledger }: Deps,
): Promise<Earlier | undefined> {
  const place = { name, id: holder.job };
  if (fate === 'removed') return undefined;
  if (fate === 'lost') throw lostRecord(`the job that the key ${key} names`, holder.job);
  if (fate === 'unmade' && holder.fingerprint !== fingerprint) {
    // If the claiming process died before it created the job, the id is free. Otherwise the key will soon name another
    // submission.
    if ((await ledger.lifeOf(holder.owner)) === 'dead' && (await ledger.forbid(holder.job))) return undefined;
    const text = `The key ${key} is about to name another submission (${holder.job}). Choose another key.`;
    return { place, conflict: new MgwError('conflict', text, { next: showCommand({ id: holder.job }) }) };
  }
  if (job === undefined) return { place };
  // A removed job may have been imported again, with another body.
  const isLost = job.record.fingerprint === lostFingerprint;
  const recorded = isLost ? holder.fingerprint : job.record.fingerprint;
  if (recorded !== fingerprint || (!isLost && job.record.variant !== order.variant)) throw keyConflict(key, job, order.body);
  return { job, place };
}
