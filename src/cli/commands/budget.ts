import type { Command } from 'commander';
import type { Limit, Per, BudgetState } from '../../budget/budget.ts';
import { budgetName } from '../../config/rules.ts';
import { add, compare, formatDecimal, parseAmount, subtract, zero } from '../../decimal.ts';
import { messageOf, usageError } from '../../errors.ts';
import { checkNoSecret } from '../../jobs/order.ts';
import type { Run } from '../command-tree.ts';
import { configuredBudgets } from '../../flows/budgets.ts';
import type { Context } from '../context.ts';
import { oneOf, single } from '../options.ts';
import type { Outcome } from '../output/outcome.ts';
import { table } from '../output/table.ts';
import { columnsOf } from '../io.ts';
import { currencyOf } from '../../flows/prices.ts';

/** `mgw budget ls|set|rm`: manages the standing budgets (design 14). */
export function registerBudget(group: Command, run: Run): void {
  const ls = group
    .command('ls')
    .description('list the standing budgets: limit, spent, reserved and left')
    .addHelpText('after', '\nExamples:\n  $ mgw budget ls\n  $ mgw budget ls --json')
    .action(() => run(ls, list));
  const set = group
    .command('set')
    .description('set the limit of a budget, or create one')
    .argument('<name>', 'the name of the budget')
    .argument('<amount>', 'maximum amount to spend, such as 100 or 0.5')
    .addOption(
      oneOf(single('--per <time>', 'limit each day or month, in UTC (default: the total)'), ['day', 'month']),
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw budget set clips 100 --per month\n  $ mgw config set budget clips\n  $ mgw video c submit "a boat" --model vendor-h3-mini --budget-name clips',
    )
    .action((name: string, amount: string) =>
      run(set, (context) => setLimit(context, name, amount, set.opts<{ per?: Per }>().per)),
    );
  const rm = group
    .command('rm')
    .description('remove a budget, and forget what was spent under it; jobs stay as they are')
    .argument('<name>', 'the name of the budget')
    .addHelpText('after', '\nExamples:\n  $ mgw budget rm clips\n  $ mgw budget rm clips --json')
    .action((name: string) => run(rm, (context) => remove(context, name)));
}

async function list(context: Context): Promise<Outcome> {
  const found: { name: string; state: BudgetState }[] = [];
  for (const name of await configuredBudgets(context)) {
    const budget = await context.budget('standing', name);
    await budget.settle();
    const state = await budget.state();
    if (state.limit !== undefined) found.push({ name, state });
  }
  if (found.length === 0)
    context.progress.note('There is no budget; mgw budget set NAME AMOUNT creates one.');
  const views = found.map(({ name, state }) => ({ name, ...viewOf(state) }));
  const rows = views.map(({ name, limit = '', per = '-', spent, reserved, left }) => [
    ...[name, limit, per, spent, reserved, left],
  ]);
  const head = [
    'name',
    `limit (${currencyOf(await context.settings())})`,
    'per',
    'spent',
    'reserved',
    'left',
  ];
  const text = rows.length === 0 ? '' : table(head, rows, columnsOf(context.io.stdout));
  return { json: { budgets: views }, text };
}

async function setLimit(
  context: Context,
  given: string,
  amount: string,
  per: Per | undefined,
): Promise<Outcome> {
  const name = checkedName(given);
  const currency = currencyOf(await context.settings());
  checkNoSecret('NAME', name, (text) => context.redact(text));
  const limit: Limit = { amount: checkedAmount(amount), per };
  const budget = await context.budget('standing', name);
  await budget.setLimit(limit);
  const view = viewOf(await budget.state());
  const whole = `${amount} ${currency}${per === undefined ? '' : ` a ${per}`}`;
  context.progress.note(`The budget ${name} is ${whole}; ${view.left} ${currency} left.`);
  return { json: { budget: { name, ...view } } };
}

async function remove(context: Context, given: string): Promise<Outcome> {
  const name = checkedName(given);
  const budget = await context.budget('standing', name);
  const { limit } = await budget.state();
  if (limit === undefined) throw usageError(`There is no budget ${name}.`, ['mgw', 'budget', 'ls']);
  await budget.remove();
  context.progress.note(`The budget ${name} was removed.`);
  return { json: { removed: [name] } };
}

function viewOf({ limit, spent, reserved }: BudgetState): {
  limit?: string;
  per?: Per;
  spent: string;
  reserved: string;
  left: string;
} {
  const held = add(spent, reserved);
  const most = limit?.amount ?? zero;
  return {
    ...(limit && { limit: formatDecimal(limit.amount), per: limit.per }),
    spent: formatDecimal(spent),
    reserved: formatDecimal(reserved),
    left: formatDecimal(compare(held, most) < 0 ? subtract(most, held) : zero),
  };
}

function checkedName(given: string): string {
  try {
    return budgetName(given);
  } catch (error) {
    throw usageError(`NAME: must be ${messageOf(error)}.`);
  }
}

function checkedAmount(given: string): Limit['amount'] {
  try {
    return parseAmount(given);
  } catch (error) {
    throw usageError(`AMOUNT ${given.slice(0, 60)}: must be ${messageOf(error)}.`);
  }
}
