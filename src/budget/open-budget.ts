import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { openBudgetLog } from './budget-log.ts';
import type { Budget } from './budget.ts';
import { FileBudget, type FileBudgetOptions } from './file-budget.ts';

/**
 * What a budget is for. A standing one has a name of a person's choice and a limit of its own; that of a command or of a
 * batch counts whatever was ever paid for it, against the limit that each run brings.
 */
export type BudgetKind = 'standing' | 'command' | 'batch';

/** Where the budgets of a kind are, below the folder of the ledger. */
export function budgetFolder(ledgerFolder: string, kind: BudgetKind): string {
  return join(ledgerFolder, 'budgets', kind);
}

/** The file of a budget; any name will do. */
export function budgetPath(ledgerFolder: string, kind: BudgetKind, name: string): string {
  const encoded = encodeURIComponent(name);
  // A file's name has 255 bytes at most.
  const short = encoded.length <= 200 ? encoded : `long-${createHash('sha256').update(name).digest('hex')}`;
  return join(budgetFolder(ledgerFolder, kind), `${short}.jsonl`);
}

/** Opens a budget, which is made where there is none. @throws MgwError('local_io') where it cannot be opened. */
export async function openBudget(path: string, options: Omit<FileBudgetOptions, 'log'>): Promise<Budget> {
  return new FileBudget({ ...options, log: await openBudgetLog(path) });
}
