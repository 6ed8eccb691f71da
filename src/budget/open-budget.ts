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

/** The names of the budgets whose files these are; none for a name that was too long for a file. */
export function budgetNames(files: readonly string[]): string[] {
  return files
    .filter((file) => file.endsWith('.jsonl'))
    .map((file) => decodeURIComponent(file.slice(0, -6)))
    .sort();
}

/** Opens a budget, which is made where there is none. @throws MgwError('local_io') where it cannot be opened. */
export async function openBudget(
  path: string,
  options: Omit<FileBudgetOptions, 'log' | 'path'>,
): Promise<Budget> {
  return new FileBudget({ ...options, path, log: await openBudgetLog(path) });
}
