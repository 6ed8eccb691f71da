import type { Budget } from '../budget/budget.ts';
import type { Settings } from '../config/resolve.ts';
import { usageError } from '../errors.ts';
import type { Allowance } from '../payment/hold.ts';

/**
 * The standing budget of `--budget-name` or the profile; none where neither names one.
 * @throws MgwError('usage') where it was never set, MgwError('local_io') where it cannot be opened.
 */
export async function standingAllowance(
  settings: Settings,
  open: (name: string) => Promise<Budget>,
): Promise<Allowance[]> {
  const { value: name, source } = settings.budget;
  if (name === undefined) return [];
  const budget = await open(name);
  const { limit } = await budget.standing();
  const raise = ['mgw', 'budget', 'set', name];
  if (limit !== undefined) return [{ name, label: `the budget ${name}`, budget, raise }];
  // The profile's is meant for real money, and the sandbox has budgets of its own.
  if (settings.sandbox.value && source === 'profile') return [];
  throw usageError(`There is no budget ${name}: give it a limit first.`, [...raise, 'AMOUNT']);
}
