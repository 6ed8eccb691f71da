import {
  readBudgetFile,
  readBudgetRows,
  writeBudgetFile,
  writeBudgetRows,
} from '../budget/budget-entries.ts';
import type { BudgetEntries } from '../budget/reservations.ts';
import { type BudgetKind, recordedBudget } from '../budget/budget.ts';
import { budgetFolder, budgetPath } from '../budget/file-budget.ts';
import { expensesOf } from '../budget/spend.ts';
import { MgwError } from '../errors.ts';
import type { Job, JobEvent, RecordedEvent } from '../job.ts';
import { attemptClaim, jobOfReservation } from '../jobs/charge-outcome.ts';
import { claimedSubmissions, claimEarlierRetries, follow, type NamedSubmission } from '../ledger/chain.ts';
import { type Holder, holderText, names, readHolder } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import { counted } from '../printable.ts';
import { budgetsIn, budgetState } from './budgets.ts';
import type { Session } from './session.ts';
import { ledgerFolder } from './settings.ts';

/** The numbers of copied jobs and budgets, excluding those that were identical in the target. */
export interface CopyCounts {
  jobs: number;
  budgets: number;
}

/** A folder or database that is the source or target of a copy. */
export interface CopyPlace {
  /** The name used in messages. */
  name: string;
  ledger: Ledger;
  budgets: CopiedBudgets;
}

interface NamedBudget {
  kind: BudgetKind;
  name: string;
  budget: BudgetEntries;
}

/** The budgets in a folder or database. `write` adds missing entries and returns whether it added any. */
export interface CopiedBudgets {
  read(): Promise<NamedBudget[]>;
  write(budget: NamedBudget): Promise<boolean>;
}

const kinds: readonly BudgetKind[] = ['standing', 'command', 'batch'];

/**
 * Returns the budgets in the given folder. Both methods of the result throw MgwError('local_io') if a budget file
 * cannot be used.
 */
export function budgetsOfFolder(folder: string): CopiedBudgets {
  return {
    read: async () => {
      const found: NamedBudget[] = [];
      for (const kind of kinds)
        for (const name of await budgetsIn(budgetFolder(folder, kind)))
          found.push({ kind, name, budget: await readBudgetFile(budgetPath(folder, kind, name)) });
      return found;
    },
    write: ({ kind, name, budget }) => writeBudgetFile(budgetPath(folder, kind, name), budget),
  };
}

/** Returns the budgets in the given database. */
export function budgetsOfDatabase(database: Database): CopiedBudgets {
  return {
    read: () => readBudgetRows(database),
    write: ({ kind, name, budget }) => writeBudgetRows(database, kind, name, budget),
  };
}

/**
 * Copies all jobs of a ledger, with their claims and budgets, into another ledger. Adds missing reservations to the
 * target's budgets and leaves the limits of those budgets unchanged. If a copy is interrupted, the next call continues
 * it.
 * @param repeat the command that repeats the copy
 * @param keepKeys whether a key that names a different job in the target stays with that job
 * @throws MgwError, with nothing written: 'local_io' if a budget is damaged; 'conflict' if a process is working on a
 * job, a job was changed in both ledgers, or a key names different jobs in the two ledgers.
 */
export async function copyState(
  from: CopyPlace,
  to: CopyPlace,
  repeat: readonly string[],
  keepKeys?: boolean,
): Promise<CopyCounts> {
  const budgets = await from.budgets.read();
  await refuseConflicts(from, to, repeat, keepKeys);
  const copied = { jobs: 0, budgets: 0 };
  // Copy budgets first, so that an interrupted copy reserves too much rather than too little.
  for (const budget of budgets) if (await to.budgets.write(budget)) copied.budgets += 1;
  copied.jobs = await copyJobs(from.ledger, to.ledger);
  return copied;
}

/**
 * Adds the reservations of imported jobs to this ledger's budgets. Skips reservations that a budget already has. The
 * jobs may come from an untrusted source, so each job adds only its own reservations, and no standing budget is
 * created.
 * @returns the names of the standing budgets that are not set here
 * @throws MgwError('local_io') if a budget cannot be read or written.
 */
export async function addReservations(
  session: Pick<Session, 'settings' | 'database' | 'budget'>,
  jobs: AsyncIterable<{ job: Job; events: readonly (RecordedEvent | undefined)[] }>,
): Promise<string[]> {
  const found = new Map<string, NamedBudget>();
  for await (const { job, events } of jobs) {
    for (const { reservation: id, amount, at, owner, kind: outcome, budgets } of expensesOf(job, events)) {
      if (id === undefined || jobOfReservation(id) !== job.id || amount === undefined || !owner) continue;
      for (const recorded of budgets.map(recordedBudget)) {
        const { kind, name = job.record.fingerprint } = recorded;
        const key = `${kind} ${name}`;
        const budget = found.get(key) ?? { kind, name, budget: { entries: [] } };
        found.set(key, budget);
        const state = outcome === 'doubt' ? 'reserved' : 'kept';
        budget.budget.entries.push({ id, amount, at, owner, state });
      }
    }
  }
  const database = await session.database();
  const folder = ledgerFolder(await session.settings());
  const target = database === undefined ? budgetsOfFolder(folder) : budgetsOfDatabase(database);
  const isSet = async (name: string): Promise<boolean> =>
    (await budgetState(session, 'standing', name)).limit !== undefined;
  const missing: string[] = [];
  for (const budget of found.values())
    if (budget.kind !== 'standing' || (await isSet(budget.name))) await target.write(budget);
    else missing.push(budget.name);
  return missing;
}

async function copyJobs(from: Ledger, to: Ledger): Promise<number> {
  let copied = 0;
  const chains = new Set<string>();
  const { owner } = await to.lease();
  // In a folder without claims, the first lookup rebuilds them from the folder's jobs. Look up a claim now, while the
  // target is empty, so that none are rebuilt.
  await to.claimed(names.after(''));
  const copyChain = async (submission: NamedSubmission): Promise<void> => {
    const first = names.first(submission);
    if (chains.has(first)) return;
    chains.add(first);
    const place = placesIn(to, first);
    const end = await follow(from, submission, async ({ holder, claimState }) => {
      // The claim of a job that was never created has no effect, so do not copy it.
      if (claimState === 'not-created') return false;
      if (claimState === 'lost') await copyAttempt(names.attempt(holder.job, 1), from, to);
      await place(holder);
      // A job that has lost its key was copied.
      if (claimState === 'removed' && (await from.read(holder.job)) === undefined)
        await to.forbid(holder.job);
      return false;
    });
    // A damaged claim refuses the submission here, so it must there too.
    if (end?.isFree === false) await to.claim(end.name, '');
  };
  for (const id of (await from.ids()).reverse()) {
    const job = await from.read(id);
    if (job === undefined) continue;
    if (await to.create(id, await eventsOf(job, from))) copied += 1;
    for (let attempt = 1; attempt <= job.record.attempts + 1; attempt += 1)
      await copyAttempt(names.attempt(id, attempt), from, to);
    await copyChain({ key: job.key, fingerprint: job.record.fingerprint });
    await claimEarlierRetries(to, job, owner);
  }
  // A damaged or lost record does not contain its job's names.
  for await (const submission of claimedSubmissions(from)) await copyChain(submission);
  return copied;
}

async function eventsOf(job: Job, from: Ledger): Promise<(JobEvent | RecordedEvent | undefined)[]> {
  // A confirmed claim without an event means that the record has lost the event. A database does not confirm claims.
  const lost = (await from.isConfirmed(attemptClaim(job))) ? [undefined] : [];
  return [...(await from.events(job.id)), ...lost];
}

async function copyAttempt(name: string, from: Ledger, to: Ledger): Promise<void> {
  const content = await from.claimed(name);
  if (content === undefined) return;
  await to.claim(name, content);
  // Confirm even an existing claim, because an earlier copy may have been interrupted before this line.
  if (await from.isConfirmed(name)) await to.confirm(name);
}

/**
 * Returns a function that appends a job to a chain in the target, unless the chain contains the job. The two ledgers
 * may contain different jobs of one command, so their chains are joined.
 */
function placesIn(to: Ledger, first: string): (holder: Holder) => Promise<void> {
  const knownIds = new Set<string>();
  let name = first;
  return async (holder) => {
    const text = holderText(holder);
    while (!knownIds.has(holder.job)) {
      const targetHolder = readHolder((await to.claim(name, text)) ?? text);
      if (targetHolder === undefined) return;
      // A search ends at a job that was never created. Forbid the creation of that job, so that searches reach the jobs
      // after it.
      if (targetHolder.job !== holder.job && (await to.claimState(targetHolder.job)) === 'not-created')
        await to.forbid(targetHolder.job);
      knownIds.add(targetHolder.job);
      name = names.after(targetHolder.job);
    }
  };
}

const maxShown = 8;

// Checks all jobs for conflicts before anything is copied.
async function refuseConflicts(
  { name: source, ledger: from }: CopyPlace,
  { name: target, ledger: to }: CopyPlace,
  repeat: readonly string[],
  keepKeys?: boolean,
): Promise<void> {
  const [changed, keys] = [[] as string[], [] as string[]];
  for (const id of (await from.ids()).reverse()) {
    const job = await from.read(id);
    if (job === undefined) continue;
    refuseInUse(job);
    const claimState = await to.claimState(id);
    if (claimState === 'removed') continue;
    if (await isChanged(job, from, to)) changed.push(id);
    const other = keepKeys || claimState === 'exists' ? undefined : await otherJobOfKey(job, from, to);
    if (other !== undefined)
      keys.push(`${job.key ?? ''} names ${id} in ${source}, and ${other} in ${target}`);
  }
  const refuse = (what: string, list: string[], separator: string, advice: string, next: string[]): never => {
    const more = list.length > maxShown ? [`and ${list.length - maxShown} more`] : [];
    const items = [...list.slice(0, maxShown), ...more].join(separator);
    throw new MgwError('conflict', `${what}: ${items}. Nothing was copied. ${advice}`, { next });
  };
  if (changed.length > 0)
    refuse(
      `${counted(changed.length, 'job')} changed in ${source} and in ${target}`,
      changed,
      ', ',
      'Remove each job from one of the two ledgers with mgw jobs rm.',
      ['mgw', 'jobs', 'show', changed[0] ?? ''],
    );
  if (keys.length > 0)
    refuse(
      `${counted(keys.length, 'key')} would name two jobs`,
      keys,
      '; ',
      `With --keep-keys, each key stays with the job that it has in ${target}. The copied job can then be found only by its id.`,
      [...repeat, '--keep-keys'],
    );
}

// Throws if a process is working on the job, because the process may send the job after it was copied.
function refuseInUse(job: Job): void {
  const run = job.record.runs.find(({ owner }) => job.record.lifeOf(owner) === 'alive');
  if (run === undefined) return;
  throw new MgwError(
    'conflict',
    `Another mgw (process ${run.owner.pid}) is working on job ${job.id}. Wait until no mgw is running, and repeat the command.`,
  );
}

// Whether the target contradicts the source's record of a job, or has the job but lacks some of its events.
async function isChanged(job: Job, from: Ledger, to: Ledger): Promise<boolean> {
  const { id, record } = job;
  for (let attempt = 1; attempt <= record.attempts + 1; attempt += 1) {
    const name = names.attempt(id, attempt);
    const [own, there] = [await from.claimed(name), await to.claimed(name)];
    if (own !== undefined && there !== undefined && own !== there) return true;
  }
  if ((await to.read(id)) === undefined) return false;
  const [events, there] = [await eventsOf(job, from), await to.events(id)];
  return JSON.stringify(there.slice(0, events.length)) !== JSON.stringify(events);
}

// Returns the different job that this job's key names in the target: its id, or 'another job' if the id is unknown.
// Undefined if the key names no different job there, or does not name this job in the source.
async function otherJobOfKey(
  { id, key, record: { fingerprint } }: Job,
  from: Ledger,
  to: Ledger,
): Promise<string | undefined> {
  if (key === undefined) return undefined;
  const jobOfKey = async (ledger: Ledger): Promise<string | undefined> => {
    let found: string | undefined;
    const end = await follow(ledger, { key, fingerprint }, ({ holder, claimState }) => {
      if (claimState === 'removed' || claimState === 'not-created') return false;
      found = holder.job;
      return true;
    });
    return end?.isFree === false ? 'another job' : found;
  };
  if ((await jobOfKey(from)) !== id) return undefined;
  const there = await jobOfKey(to);
  return there === id ? undefined : there;
}
