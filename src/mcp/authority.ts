import { createHash } from 'node:crypto';
import type { Budget } from '../budget/budget.ts';
import { add, compare, formatDecimal, parseAmount, subtract, zero } from '../decimal.ts';
import { MgwError } from '../errors.ts';
import type { Session } from '../flows/session.ts';
import type { Allowance } from '../payment/reserve.ts';
import { printableLine } from '../printable.ts';

/** A person's grant for a server to spend (design 16). */
export interface Grant {
  /** The total amount that all servers with the same root folder may spend together, an exact decimal. */
  budget?: string | undefined;
  /** Starts a new budget for the root folder, with the whole amount. */
  newBudget?: boolean | undefined;
  /** Whether the command line named a standing budget. The profile's budget is not a grant. */
  hasBudgetName: boolean;
}

/** The spending authority of a server's agent: none, unless a person granted it. */
export class Authority {
  readonly #session: Session;
  readonly #grant: Grant;
  readonly #root: string;
  #own: Promise<Budget> | undefined;

  constructor(session: Session, grant: Grant, root: string) {
    this.#session = session;
    this.#grant = grant;
    this.#root = root;
  }

  /**
   * Returns the budgets that limit a payment. Without a grant no payment fits.
   * @throws MgwError('usage') if the named budget was never set.
   */
  async allowances(): Promise<Allowance[]> {
    const { budget: amount, hasBudgetName } = this.#grant;
    if (amount === undefined && !hasBudgetName)
      return [{ name: 'mgw mcp', label: 'the budget of this server', budget: nothingGranted }];
    // The standing budget of the profile is a limit, but not a grant.
    const standing = await this.#session.allowances();
    if (amount === undefined) return standing;
    const budget = await this.#ownBudget(amount);
    return [...standing, { name: 'mgw mcp', label: 'the budget of this server', budget }];
  }

  /** Checks that a grant exists. @throws MgwError('budget') if there is none, as each payment would. */
  async check(): Promise<void> {
    const { budget, hasBudgetName } = this.#grant;
    if (budget === undefined && !hasBudgetName) await refuse();
  }

  /** Returns the flags with which a person's command spends from the same standing budget. */
  async flags(): Promise<string[]> {
    const { budget } = await this.#session.settings();
    const isGranted = this.#grant.hasBudgetName && budget.value !== undefined;
    return isGranted ? [`--budget-name=${budget.value}`] : [];
  }

  /** Returns the state of each budget, for the agent. */
  async view(): Promise<Record<string, unknown>[]> {
    const { budget: amount, hasBudgetName } = this.#grant;
    if (amount === undefined && !hasBudgetName) return [];
    const all = await this.allowances();
    return Promise.all(
      all.map(async ({ label, budget }) => {
        await budget.settle();
        const { limit, spent, reserved } = await budget.state();
        const used = add(spent, reserved);
        const most = limit?.amount ?? zero;
        return {
          budget: printableLine(label),
          limit: formatDecimal(most),
          ...(limit?.per && { per: limit.per }),
          spent: formatDecimal(spent),
          reserved: formatDecimal(reserved),
          left: formatDecimal(compare(used, most) < 0 ? subtract(most, used) : zero),
        };
      }),
    );
  }

  /** Closes the opened budgets. */
  async close(): Promise<void> {
    await (await this.#own?.catch(() => undefined))?.close();
  }

  #ownBudget(amount: string): Promise<Budget> {
    return (this.#own ??= this.#open(amount).catch((error: unknown) => {
      // The next call retries.
      this.#own = undefined;
      throw error;
    }));
  }

  // Each `--new-budget` starts the next numbered budget of the root folder.
  async #open(amount: string): Promise<Budget> {
    let number = 1;
    let budget = await this.#numbered(number);
    for (;;) {
      const next = await this.#numbered(number + 1);
      if (!(await isUsed(next))) {
        if (this.#grant.newBudget && (await isUsed(budget))) {
          await budget.close();
          budget = next;
        } else await next.close();
        break;
      }
      await budget.close();
      [budget, number] = [next, number + 1];
    }
    const limit = { amount: parseAmount(amount) };
    const { limit: before } = await budget.state();
    if (before === undefined || compare(before.amount, limit.amount) !== 0) await budget.setLimit(limit);
    return budget;
  }

  #numbered(number: number): Promise<Budget> {
    const name = createHash('sha256').update(['mcp', this.#root, number].join('\n')).digest('hex');
    return this.#session.budget('command', name);
  }
}

async function isUsed(budget: Budget): Promise<boolean> {
  const { limit, spent, reserved } = await budget.state();
  return limit !== undefined || compare(add(spent, reserved), zero) > 0;
}

function refuse(): Promise<never> {
  const text =
    'This server may not spend anything: it was started without a budget. Nothing was sent. A person can start it with "mgw mcp --budget AMOUNT" or "mgw mcp --budget-name NAME".';
  return Promise.reject(
    new MgwError('budget', text, { retry: 'safe', next: ['mgw', 'mcp', '--budget', 'AMOUNT'] }),
  );
}

const nothing = (): Promise<void> => Promise.resolve();

// A job that was paid for earlier is still found, since only payments check budgets.
const nothingGranted: Budget = {
  reserve: refuse,
  state: refuse,
  setLimit: refuse,
  keep: nothing,
  release: nothing,
  settle: nothing,
  remove: nothing,
  close: nothing,
};
