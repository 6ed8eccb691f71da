import { readdir } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import type { Budget, BudgetKind, BudgetState } from '../budget/budget.ts';
import { batchBudgetName, recordedBudget } from '../budget/budget.ts';
import { budgetFolder, budgetNames, budgetPath, openBudget } from '../budget/file-budget.ts';
import type { Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import { type Decimal, formatDecimal, parseAmount, zero } from '../decimal.ts';
import { messageOf, MgwError, systemCode, usageError } from '../errors.ts';
import { chargesOf } from '../budget/spend.ts';
import type { Job } from '../job.ts';
import { chargeOutcome, jobOfReservation } from '../jobs/charge-outcome.ts';
import type { BudgetsOf } from '../jobs/remove.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import type { Allowance } from '../payment/reserve.ts';
import { type FlowDeps, ledgerFolder } from './settings.ts';
import { costOutsideBudget } from './spend.ts';

/** The parts of a session needed to open a budget. */
interface Sources {
  clock: Clock;
  settings: () => Promise<Settings>;
  ledger: () => Promise<Ledger>;
  database: () => Promise<Database | undefined>;
}

/** Opens a budget in the session's ledger, creating it if needed. @throws MgwError if it cannot be opened. */
export async function openSessionBudget(session: Sources, kind: BudgetKind, name: string): Promise<Budget> {
  const [settings, ledger, database] = await Promise.all([
    session.settings(),
    session.ledger(),
    session.database(),
  ]);
  const outcomeOf: Parameters<typeof openBudget>[1]['outcomeOf'] = (reservation) =>
    chargeOutcome(ledger, reservation);
  if (database !== undefined) {
    const { PostgresBudget } = await import('../budget/postgres-budget.ts');
    return new PostgresBudget({ database, kind, name, outcomeOf });
  }
  const now = (): number => session.clock.now();
  return openBudget(budgetPath(ledgerFolder(settings), kind, name), { now, outcomeOf });
}

/** Returns the names of the standing budgets, including removed ones. @throws MgwError if they cannot be read. */
export async function configuredBudgets(session: Pick<Sources, 'settings' | 'database'>): Promise<string[]> {
  const database = await session.database();
  if (database !== undefined) {
    const { configuredNames } = await import('../budget/postgres-budget.ts');
    return configuredNames(database);
  }
  return budgetsIn(budgetFolder(ledgerFolder(await session.settings()), 'standing'));
}

/**
 * Returns the names of the budgets in the given folder; empty if the folder does not exist.
 * @throws MgwError if the folder cannot be read.
 */
export async function budgetsIn(folder: string): Promise<string[]> {
  try {
    return budgetNames(await readdir(folder));
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    throw new MgwError('local_io', `The budgets in ${folder} cannot be read: ${messageOf(error)}.`, {
      retry: 'safe',
      cause: error,
    });
  }
}

/**
 * Finds the open reservations in all budgets of the session's ledger. Skips damaged budgets, because no submission can
 * use them.
 * @returns a function that opens the budgets in which a job has an open reservation
 * @throws MgwError if the budgets cannot be listed.
 */
export async function budgetsWithReservations(
  session: Sources & { budget(kind: BudgetKind, name: string): Promise<Budget> },
): Promise<BudgetsOf> {
  const database = await session.database();
  let reservationsByJob: Promise<Map<string, Map<string, OpenReservation>>> | undefined;
  const opened = new Map<string, Promise<Budget>>();
  return async (jobId) => {
    reservationsByJob ??= (database === undefined ? openInFiles(session) : openInDatabase(database)).then(
      byJob,
    );
    const jobBudgets = [...((await reservationsByJob).get(jobId) ?? [])];
    return Promise.all(
      jobBudgets.map(([path, { kind, name }]) => {
        const budget = opened.get(path) ?? session.budget(kind, name);
        opened.set(path, budget);
        return budget;
      }),
    );
  };
}

// Groups reservations by job, with one reservation per budget.
function byJob(open: readonly OpenReservation[]): Map<string, Map<string, OpenReservation>> {
  const byJobId = new Map<string, Map<string, OpenReservation>>();
  for (const each of open) {
    const jobId = jobOfReservation(each.id);
    const budgets = byJobId.get(jobId) ?? new Map<string, OpenReservation>();
    byJobId.set(jobId, budgets.set(`${each.kind}/${each.name}`, each));
  }
  return byJobId;
}

/** An open reservation and its budget. */
interface OpenReservation {
  kind: BudgetKind;
  name: string;
  id: string;
}

async function openInDatabase(database: Database): Promise<OpenReservation[]> {
  const { openReservations } = await import('../budget/postgres-budget.ts');
  return openReservations(database);
}

async function openInFiles(session: Pick<Sources, 'settings'>): Promise<OpenReservation[]> {
  const folder = ledgerFolder(await session.settings());
  const { readBudgetFile } = await import('../budget/budget-entries.ts');
  const open: OpenReservation[] = [];
  for (const kind of ['standing', 'command', 'batch'] as const) {
    for (const name of await budgetsIn(budgetFolder(folder, kind))) {
      const { entries } = await readBudgetFile(budgetPath(folder, kind, name)).catch((error: unknown) => {
        if (error instanceof MgwError) return { entries: [] };
        throw error;
      });
      for (const { id, state } of entries) if (state === 'reserved') open.push({ kind, name, id });
    }
  }
  return open;
}

/**
 * Returns the standing budget that `--budget-name` or the profile specifies; empty if neither specifies one.
 * @throws MgwError('usage') if the budget was never set, MgwError('local_io') if it cannot be opened.
 */
export async function configuredAllowance(session: BudgetSession): Promise<Allowance[]> {
  const settings = await session.settings();
  const { value: name, source } = settings.budget;
  if (name === undefined) return [];
  const budget = await existingBudget(session, 'standing', name);
  if (budget !== undefined && (await budget.state()).limit !== undefined)
    return [standingAllowance(name, budget)];
  // The profile's budget is for real money. The sandbox has its own budgets.
  if (settings.sandbox.value && source === 'profile') return [];
  throw usageError(`No such budget: ${name}. Set its limit first.`, [...raiseCommand(name), 'AMOUNT']);
}

function standingAllowance(name: string, budget: Budget): Allowance {
  return { name, label: `the budget ${name}`, budget, raiseCommand: raiseCommand(name) };
}

function raiseCommand(name: string): string[] {
  return ['mgw', 'budget', 'set', name];
}

/** The parts of a session needed to open a budget only if it exists. */
type BudgetSession = Pick<Sources, 'settings' | 'database'> & {
  budget(kind: BudgetKind, name: string): Promise<Budget>;
};

/** Returns a budget's state. Creates no budget. @throws MgwError('local_io') if the budget cannot be read. */
export async function budgetState(
  session: BudgetSession,
  kind: BudgetKind,
  name: string,
): Promise<BudgetState> {
  const budget = await existingBudget(session, kind, name);
  return budget === undefined ? { spent: zero, reserved: zero } : budget.state();
}

// Creates no file. In a database, a budget exists only if an amount was reserved or a limit was set.
async function existingBudget(
  session: BudgetSession,
  kind: BudgetKind,
  name: string,
): Promise<Budget | undefined> {
  const path = budgetPath(ledgerFolder(await session.settings()), kind, name);
  const exists = (await session.database()) !== undefined || existsSync(path);
  return exists ? session.budget(kind, name) : undefined;
}

/**
 * Adds to `deps` the budgets that limit a command or a batch. These are the standing budget and, if `amount` (an exact
 * decimal) is set, the budget `name`. That budget counts every charge ever made under its name and, for a batch, the
 * runs without a budget.
 * @param raiseCommand see {@link Allowance}
 * @throws MgwError('usage') if the standing budget was never set, MgwError('local_io') if a budget cannot be opened.
 */
export async function withBudget<D extends FlowDeps>(
  deps: D,
  kind: Exclude<BudgetKind, 'standing'>,
  name: string,
  amount: string | undefined,
  raiseCommand?: string[],
): Promise<D> {
  const standingAllowances = await deps.allowances();
  if (amount === undefined) return { ...deps, allowances: () => Promise.resolve(standingAllowances) };
  const limit = { amount: parseAmount(amount) };
  const budget = await deps.openBudget(kind, name);
  let costOutside: Promise<Decimal> | undefined;
  const allowance: Allowance =
    kind === 'command'
      ? { name: '--budget', label: 'the budget of this command', budget, limit }
      : {
          name: batchBudgetName(name),
          label: `the budget of the batch ${name}`,
          budget,
          limit,
          raiseCommand,
          costOutside: () => (costOutside ??= costOutsideBudget(name, deps)),
        };
  return { ...deps, allowances: () => Promise.resolve([...standingAllowances, allowance]) };
}

/** The budgets that a job was charged to, according to its events. */
export interface RecordedBudgets {
  standing: string[];
  /** What `--budget` applied to: the command or a batch; undefined if it was not set. */
  own?: 'command' | { batch: string };
  /** The limit set with `--budget`; undefined if no limit was set, or if an older mgw did not record the limit. */
  limit?: string;
}

/**
 * Returns the budgets of a job's attempts. The budget of a batch applies to all its rows, with its latest limit.
 * @throws MgwError('local_io') if a budget cannot be read.
 */
export async function budgetsOfJob(
  session: Parameters<typeof budgetState>[0] & Pick<Sources, 'ledger'>,
  { id, key = '' }: Job,
): Promise<RecordedBudgets> {
  const recorded = recordedBudgets(await (await session.ledger()).events(id));
  const { own } = recorded;
  const [batch = ''] = own === undefined && key.includes('/') ? key.split('/') : [];
  const name = typeof own === 'object' ? own.batch : batch;
  const { limit } = name === '' ? {} : await budgetState(session, 'batch', name);
  return limit === undefined
    ? recorded
    : { ...recorded, own: { batch: name }, limit: formatDecimal(limit.amount) };
}

// Returns the budgets of every attempt that was, or may have been, accepted.
function recordedBudgets(events: Parameters<typeof chargesOf>[0]): RecordedBudgets {
  const charges = chargesOf(events).filter(({ outcome }) => outcome !== 'none');
  const names = [...new Set(charges.flatMap(({ budgets = [] }) => budgets))];
  const budgets = names.map(recordedBudget);
  const namesOf = (of: BudgetKind): string[] =>
    budgets.flatMap(({ kind, name }) => (kind === of && name !== undefined ? [name] : []));
  const [batch] = namesOf('batch');
  return {
    standing: namesOf('standing').filter((name) => /^[^-\s]\S*$/.test(name)),
    own: batch !== undefined ? { batch } : names.includes('--budget') ? 'command' : undefined,
    limit: charges.findLast(({ limit }) => limit !== undefined)?.limit,
  };
}

/**
 * Adds to `deps` the budgets that limit the resubmission of a job: the job's recorded budgets and the command's
 * budgets.
 * @param amount replaces the limit of the job's own budget
 * @throws MgwError('usage') if the limit of the job's own budget is unknown; otherwise as {@link withBudget} does.
 */
export async function withRecordedBudgets<D extends FlowDeps>(
  deps: D,
  { id, record: { fingerprint } }: Job,
  { standing, own, limit }: RecordedBudgets,
  amount = limit,
): Promise<D> {
  if (own !== undefined && amount === undefined)
    throw usageError(
      `Job ${id} was paid for under --budget, but the budget's amount was not recorded. Nothing was sent.`,
      [...['mgw', 'jobs', 'resolve', id, '--resubmit', '--budget', 'AMOUNT']],
    );
  const chosen = await deps.allowances();
  const others = standing.filter((name) => chosen.every((each) => each.name !== name));
  const recorded = await Promise.all(
    others.map(async (name) => standingAllowance(name, await deps.openBudget('standing', name))),
  );
  const all = { ...deps, allowances: () => Promise.resolve([...chosen, ...recorded]) };
  return typeof own === 'object'
    ? withBudget(all, 'batch', own.batch, amount)
    : withBudget(all, 'command', fingerprint, amount);
}
