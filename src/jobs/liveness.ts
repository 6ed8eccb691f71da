import type { Deadline } from '../clock.ts';
import { isOpenFor, type Goal, type Job, type Owner } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { JobDeps, Order } from './order.ts';
import { isSameOutput } from './output.ts';
import { isRunning, liveRuns, reconcile, shownState } from './reconcile.ts';
import { interruptedError, pendingError, noHandleError } from './errors.ts';

/** Processes on other machines that run a job and are not known to be alive or dead. */
export interface UncertainRuns {
  job: Job;
  owners: Owner[];
}

type OrderMatch = Pick<Order, 'key' | 'variant' | 'goal' | 'isOneShot' | 'blockedByAnyDoubt'>;

/** How often to read a lease while waiting for its renewal, in ms. */
const leasePollMs = 500;

/** Whether a live process is saving the job to the same file. If so, this run joins that process. */
export function isRunningFor(job: Job, { output }: Goal): boolean {
  if (output === undefined || output === '-') return false;
  return liveRuns(job).some((run) => run.output !== undefined && isSameOutput(run.output, output));
}

/**
 * Whether a run of the command that paid for a job has delivered the job to the goal's output file.
 * @param before ignore deliveries at or after this time, in ms since 1970
 */
export function isDeliveredTo({ record: { goals } }: Job, { output }: Goal, before = Infinity): boolean {
  if (output === undefined || output === '-') return false;
  return goals.some(
    (goal) =>
      goal.deliveredAt !== undefined &&
      Date.parse(goal.deliveredAt) < before &&
      goal.output !== undefined &&
      isSameOutput(goal.output, output),
  );
}

/** Whether the live process that began the job first is a different process. */
export function isRunElsewhere(job: Job, { instance }: Owner): boolean {
  const [first] = liveRuns(job);
  return first !== undefined && first.owner.instance !== instance;
}

/**
 * Whether repeating the same command continues with the given job (design 4).
 * @param isNewest whether no later job of the submission was paid for
 */
export function continuesWith(
  job: Job,
  { key, variant, goal, isOneShot, blockedByAnyDoubt }: OrderMatch,
  isNewest: boolean,
): boolean {
  const isUnknown = shownState(job) === 'unknown';
  // Different keys mean different jobs. A job in doubt without a key blocks any submission of its body.
  if (job.key !== key && key !== undefined)
    return isUnknown && (job.key === undefined || (blockedByAnyDoubt !== undefined && !isOfBatch(job, key)));
  if (isUnknown) return true;
  if (job.record.variant !== variant) return false;
  if (isRunning(job)) return isRunningFor(job, goal);
  // The job was paid for. It is neither resumed nor paid for again unless the user requests that (design 8).
  if (isOneShot && job.handle !== undefined && job.state !== 'succeeded') return isNewest;
  return job.state !== 'failed' && job.state !== 'rejected' && isOpenFor(job, goal);
}

// Whether a job belongs to the batch in a row's key: rows of one batch may have the same request.
function isOfBatch({ key: otherKey = '' }: Job, key: string): boolean {
  const batch = key.slice(0, key.indexOf('/') + 1);
  return batch !== '' && otherKey.startsWith(batch);
}

/**
 * Returns why a job with the same request under a different key blocks a row of an agent's batch; undefined if it does
 * not block the row.
 */
export function doubtForRow(
  job: Job,
  key: string,
  isOneShot: boolean,
): 'unknown' | 'sending' | 'unreported' | undefined {
  if (isOfBatch(job, key)) return undefined;
  if (shownState(job) === 'unknown') return 'unknown';
  return doubtAbout(job, { key, isOneShot, blockedByAnyDoubt: { remainingMs: () => 0 } });
}

/**
 * Returns why a job with the same request under a different key blocks an agent's submission: the job is being sent, or
 * was accepted but its caller was never notified. Undefined if it does not block the submission. An agent that did not
 * get the result may try again under a different key.
 */
export function doubtAbout(
  job: Job,
  { key, isOneShot = false, blockedByAnyDoubt }: Pick<OrderMatch, 'key' | 'isOneShot' | 'blockedByAnyDoubt'>,
): 'sending' | 'unreported' | undefined {
  if (blockedByAnyDoubt === undefined || job.key === key) return undefined;
  // Rows that another batch has paid for are refused earlier, unless the agent requested to repeat them.
  if (key?.includes('/') && job.key?.includes('/')) return undefined;
  const runs = liveRuns(job);
  const isAccepted = job.handle !== undefined;
  // A run that does not wait for a result is about to notify its caller of the acceptance.
  if (runs.some(({ ask }) => !isAccepted || isOneShot || ask === 'accept')) return 'sending';
  if (!isAccepted || job.key === undefined) return undefined;
  const { goals } = job.record;
  if (goals.length === 0 || goals.some(({ deliveredAt }) => deliveredAt !== undefined)) return undefined;
  // A failed call was paid for too. The status of a batch reports its failed rows.
  const isFailedRow = job.state === 'failed' && job.key.includes('/');
  if (isOneShot)
    return isFailedRow || goals.some((goal) => goal.isFailureReported) ? undefined : 'unreported';
  // A fetched file means that the caller knew of the job.
  const hasFailed = job.state === 'failed' || job.state === 'rejected';
  return hasFailed || job.files.length > 0 ? undefined : 'unreported';
}

/**
 * If a job's process died after recording the response but before interpreting it, interprets the response and returns
 * the job with the verdict. Used only for agents, because the job may have been accepted under a different key.
 * @throws MgwError('local_io') if the verdict cannot be recorded.
 */
export async function withReadReply(
  job: Job,
  { blockedByAnyDoubt, read }: Pick<Partial<Order>, 'blockedByAnyDoubt' | 'read'>,
  ledger: Ledger,
): Promise<Job> {
  const isUnread = job.record.pendingReply !== undefined;
  return isUnread && blockedByAnyDoubt !== undefined && read !== undefined
    ? reconcile(ledger, job, read)
    : job;
}

/**
 * Returns the processes on other machines that must be dead for the command to continue with a job, and whose leases
 * have not ended. Undefined if there are none, or if one is known to be alive.
 * @param aliveOwners leases that are known to have been renewed
 */
export async function uncertainRuns(
  job: Job,
  order: OrderMatch,
  isNewest: boolean,
  aliveOwners: ReadonlySet<string>,
  ledger: Ledger,
): Promise<UncertainRuns | undefined> {
  const { sender, lifeOf } = job.record;
  const isResumed = continuesWith(
    { ...job, record: { ...job.record, lifeOf: () => 'dead' } },
    order,
    isNewest,
  );
  if (!isResumed) return undefined;
  const runningOwners = liveRuns(job).map(({ owner }) => owner);
  if (sender !== undefined && lifeOf(sender) === 'alive') runningOwners.push(sender);
  const owners = [...new Map(runningOwners.map((owner) => [owner.lease, owner])).values()];
  for (const owner of owners) {
    const isAlive = owner.lease === undefined || aliveOwners.has(owner.lease);
    if (isAlive || (await ledger.uncertainLease(owner)) === undefined) return undefined;
  }
  return owners.length > 0 ? { job, owners } : undefined;
}

/**
 * Waits until each process's lease is renewed (the process is alive) or ends (the process is dead). Adds renewed leases
 * to `alive`.
 * @throws MgwError at the deadline: exit 8, or 6 if the job was never sent; 130/143 if interrupted.
 */
export async function waitForRenewal(
  { job, owners }: UncertainRuns,
  aliveOwners: Set<string>,
  deadline: Deadline,
  deps: JobDeps,
): Promise<void> {
  const { ledger, clock, signals, note } = deps;
  for (const owner of owners) {
    const first = await ledger.uncertainLease(owner);
    if (first === undefined) continue;
    note(
      `${job.id} was started on another machine by a process that may have died. Waiting up to ${Math.ceil(first.leftMs / 1000)} s until its lease is renewed or ends.`,
    );
    for (let lease: typeof first | undefined = first; lease?.until === first.until;) {
      const leftMs = deadline.remainingMs();
      if (leftMs <= 0) throw job.handle === undefined ? noHandleError(job) : pendingError(job);
      await clock.sleep(Math.min(leasePollMs, leftMs, lease.leftMs + 10), signals.soft).catch(() => {
        throw interruptedError(signals.soft, job, 'no');
      });
      lease = await ledger.uncertainLease(owner);
      if (lease !== undefined && lease.until !== first.until) aliveOwners.add(owner.lease ?? '');
    }
  }
}
