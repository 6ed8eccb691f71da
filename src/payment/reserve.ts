import { randomUUID } from 'node:crypto';
import type { Budget, BudgetState, Charge, ChargeOutcome, Decision, Limit } from '../budget/budget.ts';
import { add, compare, excess, formatDecimal, max, parseDecimal, zero, type Decimal } from '../decimal.ts';
import { messageOf, MgwError, type BudgetShortfall } from '../errors.ts';
import type { AttemptMoney, JobCost } from '../job.ts';
import type { Lease } from '../ledger/ledger.ts';

/** A budget that limits payments. */
export interface Allowance {
  /** The name used in records. */
  name: string;
  /** The name used in messages, such as `the budget clips`. */
  label: string;
  budget: Budget;
  /** The limit for a budget that has no limit of its own. */
  limit?: Limit;
  /** The command that raises the limit, without the amount; absent if a flag of the same command raises it. */
  raiseCommand?: string[] | undefined;
  /** Returns a cost that counts against `limit` but was not reserved in the budget. */
  costOutside?: () => Promise<Decimal>;
}

/** The cost of a purchase, if known. */
export interface PricedOrder {
  /** Absent if no price is known. */
  cost?: JobCost;
  /** The priced item, such as `vendor-h3-mini (Protocol C)`. */
  subject: string;
  /** The unit of amounts in messages. Default: credits. */
  currency?: string;
  /** The command that sets the price, if one can be set. */
  priceCommand?: string[];
}

/** A payment to reserve in budgets. */
export interface Purchase extends PricedOrder {
  /** The reservation's name: the job's id, under which the ledger records the outcome. */
  name: string;
}

/** A payment's reservation in every budget that applies. */
export interface Reservation {
  /** The cost and the reservation, to be recorded with each attempt. */
  money: AttemptMoney;
  /** Keeps or releases the reservation; never throws. `open` leaves it reserved until the ledger proves the outcome. */
  settle(outcome: ChargeOutcome): Promise<void>;
}

/**
 * Reserves the maximum cost of a payment, durably, in every budget or in none.
 * @throws MgwError('budget'), exit 12, if the cost exceeds a budget or no price is known; MgwError('local_io') if a
 * budget cannot be read or written.
 */
export async function reserve(
  purchase: Purchase,
  allowances: readonly Allowance[],
  lease: () => Promise<Lease>,
  note: (text: string) => void,
): Promise<Reservation> {
  const { cost } = purchase;
  const [first] = allowances;
  if (first === undefined) return { money: { cost }, settle: async () => {} };
  if (cost === undefined) throw await unpricedError(purchase, first);
  const { owner } = await lease();
  const id = `${purchase.name}.${randomUUID().slice(0, 8)}`;
  const amount = parseDecimal(cost.at_most);
  const reservedIn: Allowance[] = [];
  const settle = async (outcome: ChargeOutcome): Promise<void> => {
    if (outcome === 'open') return;
    for (const { label, budget } of reservedIn) {
      const settlement = outcome === 'accepted' ? budget.keep(id) : budget.release(id);
      await settlement.catch((error: unknown) => {
        note(
          `The outcome of the reservation of ${cost.at_most} could not be recorded in ${label}: ${messageOf(error)}`,
        );
      });
    }
  };
  for (const allowance of allowances) {
    const decision = await reserveIn(allowance, { id, amount, owner }).catch(async (error: unknown) => {
      await settle('none');
      throw error;
    });
    if (!decision.fits) {
      await settle('none');
      throw exceededError(allowance, purchase, decision.state);
    }
    reservedIn.push(allowance);
  }
  const budgets = allowances.map(({ name }) => name);
  const limited = allowances.find(({ limit }) => limit);
  const limit = limited?.limit && formatDecimal(limited.limit.amount);
  return { money: { cost, reservation: id, budgets, limit }, settle };
}

/**
 * Checks that every budget allows several payments together. Reserves nothing. If a price is unknown, checks nothing,
 * because {@link reserve} refuses the payment.
 * @throws MgwError('budget'), exit 12, with the limit that would allow all payments.
 */
export async function checkBudgets(
  orders: readonly PricedOrder[],
  allowances: readonly Allowance[],
): Promise<void> {
  const costs = orders.flatMap(({ cost }) => (cost === undefined ? [] : [parseDecimal(cost.at_most)]));
  const [first] = orders;
  if (first === undefined || costs.length < orders.length) return;
  const total = costs.reduce(add);
  for (const allowance of allowances) {
    await allowance.budget.settle();
    const state = await fullState(allowance, await allowance.budget.state());
    const sum = add(add(state.spent, state.reserved), total);
    if (state.limit === undefined || compare(sum, state.limit.amount) > 0)
      throw exceededError(allowance, { ...first, cost: { at_most: formatDecimal(total) } }, state);
  }
}

async function reserveIn(allowance: Allowance, charge: Charge): Promise<Decision> {
  const { budget, limit, costOutside } = allowance;
  const outside = (await costOutside?.()) ?? zero;
  const decision = await budget.reserve(charge, limit && { ...limit, amount: excess(limit.amount, outside) });
  return decision.fits ? decision : { fits: false, state: await fullState(allowance, decision.state) };
}

async function fullState({ limit, costOutside }: Allowance, state: BudgetState): Promise<BudgetState> {
  const spent = add(state.spent, (await costOutside?.()) ?? zero);
  return { ...state, limit: limit ?? state.limit, spent };
}

async function unpricedError(
  { subject, currency = 'credits', priceCommand }: Purchase,
  allowance: Allowance,
): Promise<MgwError> {
  const { label } = allowance;
  const state = await fullState(allowance, await allowance.budget.state());
  const budget = shortfallOf(allowance, undefined, state);
  const advice =
    priceCommand === undefined
      ? 'This request can only be paid for without a budget.'
      : 'Set the price, or run the command without the budget.';
  const text = `No price is known for ${subject}, so mgw cannot tell whether it fits within ${label} (${budget.left} ${currency} left). The request was not sent. ${advice}`;
  return new MgwError('budget', text, { retry: 'safe', next: priceCommand, budget });
}

function exceededError(
  allowance: Allowance,
  { cost: price, currency = 'credits' }: PricedOrder,
  state: BudgetState,
): MgwError {
  const { label, raiseCommand } = allowance;
  const amount = parseDecimal(price?.at_most ?? '0');
  const budget = shortfallOf(allowance, amount, state);
  const { limit, per, left, spent, reserved, cost_at_most: cost = '' } = budget;
  if (limit === undefined) {
    const text = `${capitalize(label)} no longer has a limit. The request was not sent.`;
    return new MgwError('budget', text, {
      retry: 'safe',
      next: raiseCommand && [...raiseCommand, cost],
      budget,
    });
  }
  const requiredLimit = formatDecimal(add(add(state.spent, state.reserved), amount));
  const limitText = per === undefined ? limit : `${limit} a ${per}`;
  const isUnused = spent === '0' && reserved === '0';
  const usageText = isUnused
    ? ''
    : `, and ${left} is left (${spent} spent, ${reserved} reserved for payments in progress or unknown)`;
  const text =
    `${raiseCommand === undefined ? `--budget ${limit}` : `${capitalize(label)} of ${limitText}`} is too low: this may cost up to ` +
    `${cost} ${currency}${usageText}. The request was not sent. ` +
    (raiseCommand === undefined
      ? `--budget ${requiredLimit} would allow it.`
      : 'Raise the limit, or skip this request.');
  const period = per === undefined ? [] : ['--per', per];
  return new MgwError('budget', text, {
    retry: 'safe',
    next:
      raiseCommand === undefined
        ? ['mgw', 'spend', '--by', 'budget']
        : [...raiseCommand, requiredLimit, ...period],
    budget,
  });
}

/**
 * Returns the budget limit that the rest of a batch needs; undefined if the error is not about a budget's limit.
 * @param cost the highest possible cost of the rows that are not paid for
 */
export function neededLimit(error: MgwError | undefined, cost: Decimal): string | undefined {
  const { limit, spent, reserved, exceeded_by: missing } = error?.budget ?? {};
  if (limit === undefined || missing === undefined) return undefined;
  const committed = [spent, reserved].reduce((sum, part) => add(sum, parseDecimal(part ?? '0')), zero);
  return formatDecimal(max(add(parseDecimal(limit), parseDecimal(missing)), add(committed, cost)));
}

/** Returns a budget's error with the given limit in the command that raises the budget. `rest` names the unpaid rows. */
export function withRaisedLimit(limit: string, error: MgwError, rest = 'rest of the batch'): MgwError {
  const { message, next = [] } = error;
  // mgw budget set NAME AMOUNT, or mgw batch enqueue NAME --again --budget AMOUNT
  const at = next.includes('--budget') ? next.indexOf('--budget') + 1 : 4;
  const raise = [...next.slice(0, at), limit, ...next.slice(at + 1)];
  return error.with({ next: raise }, `${message} The ${rest} needs a limit of ${limit}.`);
}

function shortfallOf(
  { name }: Allowance,
  amount: Decimal | undefined,
  { limit, spent, reserved }: BudgetState,
): BudgetShortfall {
  const used = add(spent, reserved);
  const amountLimit = limit?.amount ?? zero;
  return {
    name,
    ...(limit !== undefined && { limit: formatDecimal(limit.amount), per: limit.per }),
    spent: formatDecimal(spent),
    reserved: formatDecimal(reserved),
    left: formatDecimal(excess(amountLimit, used)),
    ...(amount !== undefined && {
      cost_at_most: formatDecimal(amount),
      // Another process may have released an amount since this payment was refused.
      exceeded_by: formatDecimal(excess(add(used, amount), amountLimit)),
    }),
  };
}

function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
