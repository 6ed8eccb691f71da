import type { Option } from 'commander';
import type { BudgetKind } from '../budget/open-budget.ts';
import { parseAmount } from '../decimal.ts';
import type { JobDeps } from '../jobs/deps.ts';
import type { Allowance } from '../payment/hold.ts';
import type { Context } from './context.ts';
import { single } from './options.ts';

/** The flags of money. */
export interface BudgetOptions {
  /** An exact decimal in plain digits. */
  budget?: string;
}

/** `--budget` and `--budget-name`; `whole` says what the first one counts. */
export function budgetOptions(whole: string): Option[] {
  return [
    single('--budget <amount>', `spend no more than this on ${whole}, all runs of it together`, (text) => {
      parseAmount(text);
      return text;
    }).helpGroup('Money:'),
    single('--budget-name <name>', 'spend under this budget (default: that of the profile)').helpGroup(
      'Money:',
    ),
  ];
}

/**
 * What a command works with that pays: under its `--budget`, which counts whatever was ever paid for the command or the
 * batch that `name` stands for, and under the standing budget.
 * @throws MgwError('usage') where that was never set, MgwError('local_io') where a budget cannot be opened.
 */
export async function payingDeps(
  context: Context,
  kind: Exclude<BudgetKind, 'standing'>,
  name: string,
  options: BudgetOptions,
): Promise<JobDeps> {
  const standing = await context.allowances();
  const allowances = [...standing, ...(await ownAllowance(context, kind, name, options))];
  return { ...(await context.jobDeps()), allowances: () => Promise.resolve(allowances) };
}

async function ownAllowance(
  context: Context,
  kind: Exclude<BudgetKind, 'standing'>,
  name: string,
  { budget: amount }: BudgetOptions,
): Promise<Allowance[]> {
  if (amount === undefined) return [];
  const budget = await context.budget(kind, name);
  const limit = { amount: parseAmount(amount) };
  if (kind === 'command') return [{ name: '--budget', label: 'the budget of this command', budget, limit }];
  return [{ name: `batch ${name}`, label: `the budget of the batch ${name}`, budget, limit }];
}
