import type { Command } from 'commander';
import type { Limit, Per, BudgetState } from '../../budget/budget.ts';
import { budgetName } from '../../config/rules.ts';
import { add, excess, formatDecimal, parseAmount, zero } from '../../decimal.ts';
import { messageOf, MgwError, usageError } from '../../errors.ts';
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
    .action(() => run(ls, listBudgets));
  const set = group
    .command('set')
    .description("set a budget's limit, or create the budget")
    .argument('<name>', "the budget's name")
    .argument('<amount>', 'maximum to spend, such as 100 or 0.5')
    .addOption(
      oneOf(single('--per <time>', 'limit the spending per day or month, in UTC (default: in total)'), [
        'day',
        'month',
      ]),
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
    .description('remove a budget and its spending record; jobs are unchanged')
    .argument('<name>', "the budget's name")
    .addHelpText('after', '\nExamples:\n  $ mgw budget rm clips\n  $ mgw budget rm clips --json')
    .action((name: string) => run(rm, (context) => remove(context, name)));
}

async function listBudgets(context: Context): Promise<Outcome> {
  const views: object[] = [];
  const rows: string[][] = [];
  let firstError: MgwError | undefined;
  for (const name of await configuredBudgets(context)) {
    try {
      const budget = await context.budget('standing', name);
      await budget.settle();
      const state = await budget.state();
      if (state.limit === undefined) continue;
      const view = viewOf(state);
      const { limit = '', per = '-', spent, reserved, left } = view;
      views.push({ name, ...view });
      rows.push([name, limit, per, spent, reserved, left]);
    } catch (error) {
      if (!(error instanceof MgwError) || error.code !== 'local_io') throw error;
      firstError ??= error;
      views.push({ name, unusable: true });
      rows.push([name, 'unusable', '-', '-', '-', '-']);
    }
  }
  if (rows.length === 0) context.progress.note('No budgets. To create one: mgw budget set NAME AMOUNT');
  const head = [
    'name',
    `limit (${currencyOf(await context.settings())})`,
    'per',
    'spent',
    'reserved',
    'left',
  ];
  const text = rows.length === 0 ? '' : table(head, rows, columnsOf(context.io.stdout));
  return { json: { budgets: views }, text, ...(firstError && { error: firstError }) };
}

async function setLimit(
  context: Context,
  nameArgument: string,
  amount: string,
  per: Per | undefined,
): Promise<Outcome> {
  const name = parseName(nameArgument);
  const currency = currencyOf(await context.settings());
  checkNoSecret('NAME', name, (text) => context.redact(text));
  const limit: Limit = { amount: parseLimit(amount), per };
  const budget = await context.budget('standing', name);
  await budget.setLimit(limit);
  const view = viewOf(await budget.state());
  const limitText = `${amount} ${currency}${per === undefined ? '' : ` a ${per}`}`;
  context.progress.note(`The budget ${name} is ${limitText}; ${view.left} ${currency} left.`);
  return { json: { budget: { name, ...view } } };
}

async function remove(context: Context, nameArgument: string): Promise<Outcome> {
  const name = parseName(nameArgument);
  const budget = await context.budget('standing', name);
  const { limit } = await budget.state();
  if (limit === undefined) throw usageError(`No such budget: ${name}.`, ['mgw', 'budget', 'ls']);
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
  return {
    ...(limit && { limit: formatDecimal(limit.amount), per: limit.per }),
    spent: formatDecimal(spent),
    reserved: formatDecimal(reserved),
    left: formatDecimal(excess(limit?.amount ?? zero, add(spent, reserved))),
  };
}

function parseName(text: string): string {
  try {
    return budgetName(text);
  } catch (error) {
    throw usageError(`NAME must be ${messageOf(error)}.`);
  }
}

function parseLimit(text: string): Limit['amount'] {
  try {
    return parseAmount(text);
  } catch (error) {
    throw usageError(`AMOUNT must be ${messageOf(error)}, not ${text.slice(0, 60)}.`);
  }
}
