import { randomUUID } from 'node:crypto';
import type { Budget, ChargeOutcome, Limit, BudgetState } from '../budget/budget.ts';
import { add, excess, formatDecimal, parseDecimal, zero, type Decimal } from '../decimal.ts';
import { messageOf, MgwError, type BudgetShortfall } from '../errors.ts';
import type { AttemptMoney, JobCost } from '../job.ts';
import type { Lease } from '../ledger/ledger.ts';

/** A budget into which payments must fit. */
export interface Allowance {
  /** The name in records. */
  name: string;
  /** The name in messages: `the budget clips`. */
  label: string;
  budget: Budget;
  /** The limit, for a budget without its own. */
  limit?: Limit;
  /** The command that raises the limit, without the amount; absent if a flag of the same command does. */
  raise?: string[];
}

/** The cost of a purchase, if known. */
export interface PricedOrder {
  /** Absent if no price is known. */
  cost?: JobCost;
  /** The model or other item that has the price, in words: `vendor-h3-mini (Protocol C)`. */
  what: string;
  /** The unit of amounts in messages; credits if absent. */
  currency?: string;
  /** The command that sets the price, if one can be set. */
  priceCommand?: string[];
}

/** A payment, as seen by a budget. */
export interface Purchase extends PricedOrder {
  /** The name in reservations: the job's id, by which the ledger proves the outcome. */
  name: string;
}

/** The reservation of one payment in every budget that applies. */
export interface Reservation {
  /** The cost and the reservation, which are recorded with each attempt. */
  money: AttemptMoney;
  /** Keeps or releases the reservation; never throws. `open` leaves it reserved until the ledger proves the outcome. */
  settle(outcome: ChargeOutcome): Promise<void>;
}

/**
 * Reserves the maximum cost of a payment, durably, in all allowances or in none.
 * @throws MgwError('budget'), exit 12, if it does not fit or no price is known; MgwError('local_io') if a budget cannot
 * be read or written.
 */
export async function reserve(
  purchase: Purchase,
  allowances: readonly Allowance[],
  lease: () => Promise<Lease>,
  note: (text: string) => void,
): Promise<Reservation> {
  const { cost } = purchase;
  const [first] = allowances;
  if (first === undefined) return { money: { cost }, settle: () => Promise.resolve() };
  if (cost === undefined) throw await unpriced(purchase, first);
  const { owner } = await lease();
  const id = `${purchase.name}.${randomUUID().slice(0, 8)}`;
  const amount = parseDecimal(cost.at_most);
  const held: Allowance[] = [];
  const settle = async (outcome: ChargeOutcome): Promise<void> => {
    if (outcome === 'open') return;
    for (const { label, budget } of held) {
      const settled = outcome === 'accepted' ? budget.keep(id) : budget.release(id);
      await settled.catch((error: unknown) => {
        note(
          `The outcome of the reservation of ${cost.at_most} could not be recorded in ${label}: ${messageOf(error)}`,
        );
      });
    }
  };
  for (const allowance of allowances) {
    const decision = await allowance.budget
      .reserve({ id, amount, owner }, allowance.limit)
      .catch(async (error: unknown) => {
        await settle('none');
        throw error;
      });
    if (!decision.fits) {
      await settle('none');
      throw exceeded(allowance, purchase, decision.state);
    }
    held.push(allowance);
  }
  return { money: { cost, reservation: id, budgets: held.map(({ name }) => name) }, settle };
}

async function unpriced(
  { what, currency = 'credits', priceCommand }: Purchase,
  allowance: Allowance,
): Promise<MgwError> {
  const { label } = allowance;
  const standing = await allowance.budget.state();
  const budget = shortfallOf(allowance, undefined, standing);
  const way =
    priceCommand === undefined
      ? 'This request can only be paid for without a budget.'
      : 'Set the price, or leave the budget out.';
  const text = `No price is known for ${what}, so mgw cannot tell whether it fits into ${label} (${budget.left} ${currency} left). Nothing was sent. ${way}`;
  return new MgwError('budget', text, { retry: 'safe', next: priceCommand, budget });
}

function exceeded(
  allowance: Allowance,
  { cost: price, currency = 'credits' }: Purchase,
  standing: BudgetState,
): MgwError {
  const { label, raise } = allowance;
  const amount = parseDecimal(price?.at_most ?? '0');
  const budget = shortfallOf(allowance, amount, standing);
  const { limit, per, left, spent, reserved, cost_at_most: cost = '' } = budget;
  if (limit === undefined) {
    const text = `${capital(label)} no longer has a limit. Nothing was sent.`;
    return new MgwError('budget', text, { retry: 'safe', next: raise && [...raise, cost], budget });
  }
  const needed = formatDecimal(add(add(standing.spent, standing.reserved), amount));
  const whole = per === undefined ? limit : `${limit} a ${per}`;
  const isUnused = spent === '0' && reserved === '0';
  const used = isUnused
    ? ''
    : `, and ${left} is left (${spent} spent, ${reserved} reserved for payments in progress or unknown)`;
  const text =
    `${raise === undefined ? `--budget ${limit}` : `${capital(label)} of ${whole}`} is too low: this may cost up to ` +
    `${cost} ${currency}${used}. Nothing was sent. ` +
    (raise === undefined
      ? `--budget ${needed} would allow it.`
      : 'Raise the limit, or leave this request out.');
  const period = per === undefined ? [] : ['--per', per];
  return new MgwError('budget', text, {
    retry: 'safe',
    next: raise === undefined ? ['mgw', 'spend', '--by', 'budget'] : [...raise, needed, ...period],
    budget,
  });
}

function shortfallOf(
  { name, limit: given }: Allowance,
  amount: Decimal | undefined,
  { limit = given, spent, reserved }: BudgetState,
): BudgetShortfall {
  const held = add(spent, reserved);
  const most = limit?.amount ?? zero;
  return {
    name,
    ...(limit !== undefined && { limit: formatDecimal(limit.amount), per: limit.per }),
    spent: formatDecimal(spent),
    reserved: formatDecimal(reserved),
    left: formatDecimal(excess(most, held)),
    ...(amount !== undefined && {
      cost_at_most: formatDecimal(amount),
      // Another process may have released an amount since this one was refused.
      exceeded_by: formatDecimal(excess(add(held, amount), most)),
    }),
  };
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
