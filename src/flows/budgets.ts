import { readdir } from 'node:fs/promises';
import type { Budget } from '../budget/budget.ts';
import { budgetFolder, budgetNames, budgetPath, openBudget, type BudgetKind } from '../budget/open-budget.ts';
import type { Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { chargeOutcome } from '../jobs/charge-outcome.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import { ledgerFolder } from './places.ts';

/** What budgets are found by: a session is one such. */
interface Sources {
  clock: Clock;
  settings: () => Promise<Settings>;
  ledger: () => Promise<Ledger>;
  database: () => Promise<Database | undefined>;
}

/** A budget of the session's ledger, which is made where there is none. @throws MgwError where it cannot be opened. */
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

/** The names of the standing budgets, those that were removed among them. @throws MgwError where they cannot be read. */
export async function standingBudgets(session: Pick<Sources, 'settings' | 'database'>): Promise<string[]> {
  const database = await session.database();
  if (database !== undefined) {
    const { standingNames } = await import('../budget/postgres-budget.ts');
    return standingNames(database);
  }
  const folder = budgetFolder(ledgerFolder(await session.settings()), 'standing');
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
