import type { Option } from 'commander';
import { parseAmount } from '../decimal.ts';
import { single } from './options.ts';

/** The flags of money. */
export interface BudgetOptions {
  /** An exact decimal in plain digits. */
  budget?: string;
  budgetName?: string;
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
