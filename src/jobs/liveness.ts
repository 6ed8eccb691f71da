import type { Deadline } from '../clock.ts';
import { isOpenFor, type Goal, type Job, type Owner } from '../job.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { JobDeps } from './deps.ts';
import type { Order } from './order.ts';
import { shownState } from './reconcile.ts';
import { interruptedError, pendingError, withoutHandle } from './errors.ts';

/** Processes of other machines that run a job, if nothing shows yet whether they are alive. */
export interface UncertainRuns {
  job: Job;
  owners: Owner[];
}

type Wanted = Pick<Order, 'key' | 'goal' | 'isOneShot' | 'blockedByAnyDoubt'>;

/** How often a lease is read while it is waited for, ms. */
const lookMs = 500;

/** Whether a run of the command that paid for a job is shown to be alive. */
export function isRunning(job: Job): boolean {
  return runsOf(job).length > 0;
}

/** Whether a living process saves the job to the same file: then this run joins it. */
export function isMadeFor(job: Job, { output }: Goal): boolean {
  return output !== undefined && output !== '-' && runsOf(job).some((run) => run.output === output);
}

/**
 * Whether a run of the command that paid for a job has delivered it to the file.
 * @param before only a delivery before this time counts, ms since 1970
 */
export function isDeliveredTo({ record: { goals } }: Job, { output }: Goal, before = Infinity): boolean {
  if (output === undefined || output === '-') return false;
  return goals.some(
    (goal) =>
      goal.output === output && goal.deliveredAt !== undefined && Date.parse(goal.deliveredAt) < before,
  );
}

function runsOf({ record: { runs, lifeOf } }: Job): Job['record']['runs'] {
  return runs.filter(({ command, owner }) => command === 'submit' && lifeOf(owner) === 'alive');
}

/**
 * Whether the same command carries on with a job (design 4).
 * @param isNewest whether no later job of the submission was paid for
 */
export function carriesOn(
  job: Job,
  { key, goal, isOneShot, blockedByAnyDoubt }: Wanted,
  isNewest: boolean,
): boolean {
  const isUnknown = shownState(job) === 'unknown';
  // Two names are two jobs. A doubt about a job without a name is a doubt about any.
  if (job.key !== key && key !== undefined)
    return isUnknown && (job.key === undefined || blockedByAnyDoubt !== undefined);
  if (isUnknown) return true;
  if (isRunning(job)) return isMadeFor(job, goal);
  // It was paid for, and is neither resumed nor paid for again without being asked (design 8).
  if (isOneShot && job.handle !== undefined && job.state !== 'succeeded') return isNewest;
  return job.state !== 'failed' && job.state !== 'rejected' && isOpenFor(job, goal);
}

/**
 * Returns what blocks an agent's submission, if a job of the same request under another key does: it is being sent, or it
 * was accepted and the caller was never told. An agent that lost the answer may try again under another name.
 */
export function doubtAbout(
  job: Job,
  { key, isOneShot = false, blockedByAnyDoubt }: Wanted,
): 'sending' | 'untold' | undefined {
  if (blockedByAnyDoubt === undefined || job.key === key) return undefined;
  const runs = runsOf(job);
  const isAccepted = job.handle !== undefined;
  // The answer to an accepted submission is about to be told, unless the run also waits for a result.
  if (runs.some(({ ask }) => !isAccepted || isOneShot || ask === 'accept')) return 'sending';
  if (!isAccepted || job.key === undefined || ['failed', 'rejected'].includes(job.state)) return undefined;
  // An interrupted stream cannot be resumed. A file that was fetched was asked for by someone who knew of the job.
  const isLeft = isOneShot ? job.state === 'succeeded' : job.files.length === 0;
  const { goals } = job.record;
  const isTold = goals.length === 0 || goals.some(({ deliveredAt }) => deliveredAt !== undefined);
  return isLeft && !isTold ? 'untold' : undefined;
}

/**
 * Returns the processes on whose death it depends whether the command carries on with a job: all of them are on other
 * machines, and their leases have not ended. undefined if it depends on none, or one is known to be alive.
 * @param alive leases that are known to have been renewed
 */
export async function uncertainRuns(
  job: Job,
  wanted: Wanted,
  isNewest: boolean,
  alive: ReadonlySet<string>,
  ledger: Ledger,
): Promise<UncertainRuns | undefined> {
  const { sender, lifeOf } = job.record;
  const isResumed = carriesOn({ ...job, record: { ...job.record, lifeOf: () => 'dead' } }, wanted, isNewest);
  if (!isResumed) return undefined;
  const running = runsOf(job).map(({ owner }) => owner);
  if (sender !== undefined && lifeOf(sender) === 'alive') running.push(sender);
  const owners = [...new Map(running.map((owner) => [owner.lease, owner])).values()];
  for (const owner of owners) {
    const isKnown = owner.lease === undefined || alive.has(owner.lease);
    if (isKnown || (await ledger.uncertainLease(owner)) === undefined) return undefined;
  }
  return owners.length > 0 ? { job, owners } : undefined;
}

/**
 * Waits until the lease of each process is renewed (the process is alive) or ends (it is dead), and adds the renewed ones to
 * `alive`.
 * @throws MgwError at the deadline: exit 8, or 6 if the job was never sent; 130/143 if interrupted.
 */
export async function waitForRenewal(
  { job, owners }: UncertainRuns,
  alive: Set<string>,
  deadline: Deadline,
  deps: JobDeps,
): Promise<void> {
  const { ledger, clock, signals, note } = deps;
  for (const owner of owners) {
    const first = await ledger.uncertainLease(owner);
    if (first === undefined) continue;
    note(
      `${job.id} was started on another machine, by a process that may have died. Waiting until its lease is renewed or ends, at most ${Math.ceil(first.leftMs / 1000)} s.`,
    );
    for (let lease: typeof first | undefined = first; lease?.until === first.until;) {
      const leftMs = deadline.leftMs();
      if (leftMs <= 0) throw job.handle === undefined ? withoutHandle(job) : pendingError(job);
      await clock.sleep(Math.min(lookMs, leftMs, lease.leftMs + 10), signals.soft).catch(() => {
        throw interruptedError(signals.soft, job, 'no');
      });
      lease = await ledger.uncertainLease(owner);
      if (lease !== undefined && lease.until !== first.until) alive.add(owner.lease ?? '');
    }
  }
}
