import {
  readBudgetFile,
  readBudgetRows,
  writeBudgetFile,
  writeBudgetRows,
} from '../budget/budget-entries.ts';
import { budgetFolder, type BudgetKind, budgetPath } from '../budget/file-budget.ts';
import { MgwError } from '../errors.ts';
import type { Job, JobEvent, RecordedEvent } from '../job.ts';
import { attemptClaim } from '../jobs/charge-outcome.ts';
import { follow } from '../ledger/chain.ts';
import { names } from '../ledger/names.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import { budgetsIn } from './budgets.ts';

/** The number of copied records, not counting identical ones that already existed. */
export interface CopyCounts {
  jobs: number;
  budgets: number;
}

/**
 * Copies all jobs of a ledger into another one, with their claims. If it is interrupted, the next call continues.
 * @throws MgwError('conflict') if a process is working on a job (nothing was copied), or if the target contains a
 * different job or claim of the same name (the jobs before it were copied).
 */
export async function copyJobs(from: Ledger, to: Ledger): Promise<number> {
  let copied = 0;
  const chains = new Set<string>();
  // The first claim lookup in a folder without claims rebuilds them from its jobs. Do a lookup now, while the target is
  // empty, so that it rebuilds none.
  await to.claimed(names.after(''));
  const ids = (await from.ids()).reverse();
  // Check all jobs before copying any: if a process changed a job after it was copied, the copy would differ.
  for (const id of ids) refuseInUse(await from.read(id));
  for (const id of ids) {
    const job = await from.read(id);
    if (job === undefined) continue;
    // A confirmed claim without an event shows that the record has lost the event. A database does not confirm claims.
    const lostEvents = (await from.isConfirmed(attemptClaim(job))) ? [undefined] : [];
    const events = [...(await from.events(id)), ...lostEvents];
    if (await isMissingIn(to, id, events)) {
      await to.create(id, events);
      copied += 1;
    }
    for (let attempt = 1; attempt <= job.record.attempts + 1; attempt += 1)
      await copyClaim(names.attempt(id, attempt), from, to);
    const submission = { key: job.key, fingerprint: job.record.fingerprint };
    const first = names.first(submission);
    if (chains.has(first)) continue;
    chains.add(first);
    await follow(from, submission, async ({ name, holder, fate }) => {
      await copyClaim(name, from, to);
      if (fate === 'removed') await to.forbid(holder.job);
      return false;
    });
  }
  return copied;
}

// The process may pay for the job, or for another one, after the copy.
function refuseInUse(job: Job | undefined): void {
  const run = job?.record.runs.find(({ owner }) => job.record.lifeOf(owner) === 'alive');
  if (job === undefined || run === undefined) return;
  throw new MgwError(
    'conflict',
    `Another mgw (process ${run.owner.pid}) is working on job ${job.id}. Wait until no mgw is running, and repeat the command.`,
  );
}

async function isMissingIn(
  to: Ledger,
  id: string,
  events: readonly (JobEvent | RecordedEvent | undefined)[],
): Promise<boolean> {
  if ((await to.read(id)) === undefined) return true;
  const existing = await to.events(id);
  if (JSON.stringify(existing) === JSON.stringify(events)) return false;
  throw new MgwError(
    'conflict',
    `Job ${id} already exists in the target with a different record: both ledgers were used.`,
  );
}

async function copyClaim(name: string, from: Ledger, to: Ledger): Promise<void> {
  const content = await from.claimed(name);
  if (content === undefined) return;
  const existing = await to.claim(name, content);
  if (existing !== undefined && existing !== content)
    throw new MgwError('conflict', `${name} is already claimed in the target by ${existing.slice(0, 80)}.`);
  // Confirm an existing claim too, because an earlier copy may have been interrupted before this line.
  if (await from.isConfirmed(name)) await to.confirm(name);
}

const kinds: readonly BudgetKind[] = ['standing', 'command', 'batch'];

/**
 * Copies the budgets of a folder into a database. Existing budgets are left as they are.
 * @throws MgwError('local_io').
 */
export async function copyBudgetsIn(folder: string, database: Database): Promise<number> {
  let copied = 0;
  for (const kind of kinds) {
    for (const name of await budgetsIn(budgetFolder(folder, kind))) {
      const budget = await readBudgetFile(budgetPath(folder, kind, name));
      if (await writeBudgetRows(database, kind, name, budget)) copied += 1;
    }
  }
  return copied;
}

/**
 * Copies the budgets of a database into a folder. Existing budgets are left as they are.
 * @throws MgwError('local_io').
 */
export async function copyBudgetsOut(database: Database, folder: string): Promise<number> {
  let copied = 0;
  for (const { kind, name, budget } of await readBudgetRows(database)) {
    if (await writeBudgetFile(budgetPath(folder, kind, name), budget)) copied += 1;
  }
  return copied;
}
