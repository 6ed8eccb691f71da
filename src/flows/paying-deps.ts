import type { BudgetKind } from '../budget/open-budget.ts';
import { parseAmount } from '../decimal.ts';
import type { JobDeps } from '../jobs/deps.ts';
import type { Allowance } from '../payment/hold.ts';
import type { Session } from './session.ts';

/**
 * What a command works with that pays: under its own budget of `amount` (an exact decimal in plain digits), which counts
 * whatever was ever paid for the command or the batch that `name` stands for, and under the standing budget.
 * @throws MgwError('usage') where that was never set, MgwError('local_io') where a budget cannot be opened.
 */
export async function payingDeps(
  session: Session,
  kind: Exclude<BudgetKind, 'standing'>,
  name: string,
  { budget: amount }: { budget?: string | undefined },
): Promise<JobDeps> {
  const standing = await session.allowances();
  const own = amount === undefined ? [] : [await ownAllowance(session, kind, name, amount)];
  const allowances = [...standing, ...own];
  return { ...(await session.jobDeps()), allowances: () => Promise.resolve(allowances) };
}

async function ownAllowance(
  session: Session,
  kind: Exclude<BudgetKind, 'standing'>,
  name: string,
  amount: string,
): Promise<Allowance> {
  const limit = { amount: parseAmount(amount) };
  const budget = await session.budget(kind, name);
  if (kind === 'command') return { name: '--budget', label: 'the budget of this command', budget, limit };
  return { name: `batch ${name}`, label: `the budget of the batch ${name}`, budget, limit };
}
