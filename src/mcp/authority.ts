import { createHash } from 'node:crypto';
import type { Budget } from '../budget/budget.ts';
import { add, compare, excess, formatDecimal, parseAmount, zero } from '../decimal.ts';
import { MgwError } from '../errors.ts';
import type { Session } from '../flows/session.ts';
import type { Allowance } from '../payment/reserve.ts';
import { printableLine } from '../printable.ts';

/** The user's permission for a server to spend money (design 16). */
export interface Grant {
  /** The total amount that all servers with the same root folder may spend, as an exact decimal. */
  budget?: string | undefined;
  /** Whether to start a new budget with the full amount for the root folder. */
  newBudget?: boolean | undefined;
  /** Whether the command line contains --budget-name. The profile's budget is not a grant. */
  hasBudgetName: boolean;
}

/** The agent's authority to spend money. Without the user's grant, the agent cannot spend anything. */
export class Authority {
  readonly #session: Session;
  readonly #grant: Grant;
  readonly #root: string;
  #serverBudget: Promise<Budget> | undefined;

  constructor(session: Session, grant: Grant, root: string) {
    this.#session = session;
    this.#grant = grant;
    this.#root = root;
  }

  /**
   * Returns the budgets that limit a payment. Without a grant, refuses every payment.
   * @throws MgwError('usage') if the standing budget was never set.
   */
  async allowances(): Promise<Allowance[]> {
    const { budget: amount, hasBudgetName } = this.#grant;
    if (amount === undefined && !hasBudgetName)
      return [{ name: 'mgw mcp', label: "this server's budget", budget: emptyBudget }];
    // The profile's standing budget is a limit, not a grant.
    const standingAllowances = await this.#session.allowances();
    if (amount === undefined) return standingAllowances;
    const budget = await this.#openServerBudget(amount);
    return [...standingAllowances, { name: 'mgw mcp', label: "this server's budget", budget }];
  }

  /**
   * Checks that a grant exists.
   * @throws MgwError('budget') if there is none. Every payment would throw the same error.
   */
  async check(): Promise<void> {
    const { budget, hasBudgetName } = this.#grant;
    if (budget === undefined && !hasBudgetName) await refuse();
  }

  /** Returns the flags that make a user's command spend from the same standing budget. */
  async flags(): Promise<string[]> {
    const { budget } = await this.#session.settings();
    const isGranted = this.#grant.hasBudgetName && budget.value !== undefined;
    return isGranted ? [`--budget-name=${budget.value}`] : [];
  }

  /** Returns each budget's state, for the agent. */
  async view(): Promise<Record<string, unknown>[]> {
    const { budget: amount, hasBudgetName } = this.#grant;
    if (amount === undefined && !hasBudgetName) return [];
    const all = await this.allowances();
    return Promise.all(
      all.map(async ({ label, budget }) => {
        await budget.settle();
        const { limit, spent, reserved } = await budget.state();
        const max = limit?.amount ?? zero;
        return {
          budget: printableLine(label),
          limit: formatDecimal(max),
          ...(limit?.per && { per: limit.per }),
          spent: formatDecimal(spent),
          reserved: formatDecimal(reserved),
          left: formatDecimal(excess(max, add(spent, reserved))),
        };
      }),
    );
  }

  /** Closes all opened budgets. */
  async close(): Promise<void> {
    await (await this.#serverBudget?.catch(() => undefined))?.close();
  }

  #openServerBudget(amount: string): Promise<Budget> {
    return (this.#serverBudget ??= this.#open(amount).catch((error: unknown) => {
      // Lets the next call retry.
      this.#serverBudget = undefined;
      throw error;
    }));
  }

  // Each `--new-budget` starts the root folder's next numbered budget.
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
    const { limit: previous } = await budget.state();
    if (previous === undefined || compare(previous.amount, limit.amount) !== 0) await budget.setLimit(limit);
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
    'This server cannot spend anything, because it was started without a budget. Nothing was sent. The user can start it with "mgw mcp --budget AMOUNT" or "mgw mcp --budget-name NAME".';
  return Promise.reject(
    new MgwError('budget', text, { retry: 'safe', next: ['mgw', 'mcp', '--budget', 'AMOUNT'] }),
  );
}

const noOp = (): Promise<void> => Promise.resolve();

// A job that was paid for earlier can still be found, because only payments check budgets.
const emptyBudget: Budget = {
  reserve: refuse,
  state: refuse,
  setLimit: refuse,
  keep: noOp,
  release: noOp,
  settle: noOp,
  remove: noOp,
  close: noOp,
};
