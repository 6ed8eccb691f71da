import { describe, expect, it } from 'vitest';
import type { Budget, BudgetState, ChargeOutcome, Decision, Limit } from '../../src/budget/budget.ts';
import { decimalOf, parseDecimal } from '../../src/decimal.ts';
import { MgwError } from '../../src/errors.ts';
import {
  neededLimit,
  reserve,
  type Allowance,
  type Purchase,
  type Reservation,
} from '../../src/payment/reserve.ts';
import { deadOwner } from '../jobs/harness.ts';
import { leaseOf } from '../support/lease.ts';

const owner = deadOwner();
const stateOf = (spent: number, reserved: number, limit?: Limit): BudgetState => ({
  ...{ limit, spent: decimalOf(spent), reserved: decimalOf(reserved) },
});

/** Returns a budget that makes the given decision, and the calls that the budget receives. */
function budgetOf(decision: Decision | Error, state = stateOf(0, 0)): { budget: Budget; calls: string[] } {
  const notes: string[] = [];
  const note = (what: string): Promise<void> => Promise.resolve(void notes.push(what));
  const budget: Partial<Budget> = {
    reserve: async (charge, limit) => {
      await note(`reserve ${charge.id.replace(/\.\w{8}$/, '')} ${limit === undefined ? 'its own' : 'given'}`);
      expect(charge.owner).toBe(owner);
      if (decision instanceof Error) throw decision;
      return decision;
    },
    keep: (id) => note(`keep ${id.slice(0, 5)}`),
    release: (id) => note(`release ${id.slice(0, 5)}`),
    state: () => Promise.resolve(state),
  };
  return { budget: budget as Budget, calls: notes };
}

const fits: Decision = { fits: true };
const purchase: Purchase = { name: 'job_1', subject: 'a boat', cost: { at_most: '0.4' } };
const notes: string[] = [];
const ask = (allowances: Allowance[], of: Purchase = purchase): Promise<Reservation> =>
  reserve(of, allowances, leaseOf(owner), (text) => void notes.push(text));
const allowance = (name: string, budget: Budget, more: Partial<Allowance> = {}): Allowance => ({
  ...{ name, label: `the budget ${name}`, budget, ...more },
});

async function refusal(asking: Promise<unknown>): Promise<MgwError> {
  const error: unknown = await asking.catch((reason: unknown) => reason);
  if (error instanceof MgwError) return error;
  throw new Error('it was not refused', { cause: error });
}

describe('a reservation', () => {
  it.each<[ChargeOutcome, string[]]>([
    ['accepted', ['keep job_1']],
    ['none', ['release job_1']],
    ['open', []],
  ])('with the payment outcome "%s" is settled in every budget by the calls %j', async (outcome, settled) => {
    const [one, other] = [budgetOf(fits), budgetOf(fits)];
    const limit = { amount: decimalOf(9) };
    const reservation = await ask([allowance('a', one.budget), allowance('b', other.budget, { limit })]);
    const { money } = reservation;
    expect(money).toMatchObject({ cost: purchase.cost, budgets: ['a', 'b'], limit: '9' });
    expect(money.reservation).toMatch(/^job_1\.[\da-f]{8}$/);
    await reservation.settle(outcome);
    expect(one.calls).toEqual(['reserve job_1 its own', ...settled]);
    expect(other.calls).toEqual(['reserve job_1 given', ...settled]);
  });

  it('needs neither a price nor a lease if there is no budget', async () => {
    const noLease = (): Promise<never> => Promise.reject(new Error('a lease'));
    const reservation = await reserve({ name: 'j', subject: 'x' }, [], noLease, () => undefined);
    expect(reservation.money).toEqual({ cost: undefined });
    await reservation.settle('accepted');
  });

  it('is made in all budgets or in none', async () => {
    for (const last of [budgetOf({ fits: false, state: stateOf(1, 0) }), budgetOf(new Error('disk'))]) {
      const first = budgetOf(fits);
      await expect(ask([allowance('a', first.budget), allowance('b', last.budget)])).rejects.toThrow();
      expect(first.calls).toEqual(['reserve job_1 its own', 'release job_1']);
      expect(last.calls).toEqual(['reserve job_1 its own']);
    }
  });

  it('is reported in a note, and does not stop the payment, if it cannot be settled', async () => {
    const { budget } = budgetOf(fits);
    budget.keep = () => Promise.reject(new Error('disk full'));
    const other = budgetOf(fits);
    const reservation = await ask([allowance('a', budget), allowance('b', other.budget)]);
    notes.splice(0);
    await reservation.settle('accepted');
    expect(notes).toMatchObject([
      expect.stringMatching(/0\.4 could not be recorded in the budget a: disk full/),
    ]);
    expect(other.calls.at(-1)).toBe('keep job_1');
  });
});

describe('a payment that a budget does not allow', () => {
  const raise = ['mgw', 'budget', 'set', 'a'];
  const limit = { amount: decimalOf(1) };
  const refused = (state: BudgetState, more: Partial<Allowance> = {}, of = purchase): Promise<MgwError> =>
    refusal(ask([allowance('a', budgetOf({ fits: false, state }).budget, more)], of));

  it('causes an error with the required amount and the command that raises the limit', async () => {
    const error = await refused(stateOf(1, 2, { amount: decimalOf(3), per: 'day' }), { raiseCommand: raise });
    expect(error).toMatchObject({
      ...{ code: 'budget', exitCode: 12, charged: 'no', retry: 'safe' },
      next: [...raise, '3.4', '--per', 'day'],
      budget: {
        ...{ name: 'a', limit: '3', per: 'day', spent: '1', reserved: '2', left: '0' },
        ...{ cost_at_most: '0.4', exceeded_by: '0.4' },
      },
    });
    expect(error.message).toMatch(
      /^The budget a of 3 a day is too low: .* 0\.4 credits, and 0 is left \(1 spent, 2 reserved/,
    );
    expect((await refused(stateOf(0, 0, limit), { raiseCommand: raise })).message).toMatch(
      /^The budget a of 1 is too low: .* up to 0\.4 credits\. The request was not sent/,
    );
    const used = await refused(stateOf(1, 0, limit), { raiseCommand: raise });
    expect(used.next).toEqual([...raise, '1.4']);
    expect(used.message).toContain('0 is left (1 spent, 0 reserved');
  });

  it('is refused even if another process has since released a sufficient amount', async () => {
    const { budget } = await refused(stateOf(0, 0, limit), { raiseCommand: raise });
    expect(budget).toMatchObject({ left: '1', cost_at_most: '0.4', exceeded_by: '0' });
  });

  it('causes an error that suggests a higher --budget if the flag set the limit', async () => {
    const error = await refused(stateOf(0, 1), { limit }, { ...purchase, currency: 'USD' });
    expect(error.message).toMatch(
      /^--budget 1 is too low: .* 0\.4 USD, and 0 is left .* --budget 1\.4 would allow it\.$/,
    );
    expect(error).toMatchObject({
      next: ['mgw', 'spend', '--by', 'budget'],
      budget: { limit: '1', left: '0' },
    });
  });

  it('causes an error that suggests the command that sets a limit if the budget has none', async () => {
    const error = await refused(stateOf(0, 0), { raiseCommand: raise });
    expect(error.message).toBe('The budget a no longer has a limit. The request was not sent.');
    expect([error.next, error.budget?.limit, error.budget?.exceeded_by]).toEqual([
      [...raise, '0.4'],
      undefined,
      '0.4',
    ]);
    expect((await refused(stateOf(0, 0))).next).toBeUndefined();
  });

  it('causes an error that suggests how to set the price if the price is unknown', async () => {
    const { budget } = budgetOf(fits, stateOf(1, 0, { amount: parseDecimal('1.5') }));
    const of = { name: 'j', subject: 'a boat' };
    const priceCommand = ['mgw', 'config', 'set', 'prices.c.m', 'second=AMOUNT'];
    const error = await refusal(ask([allowance('a', budget)], { ...of, priceCommand }));
    expect(error).toMatchObject({ code: 'budget', next: priceCommand, budget: { left: '0.5', spent: '1' } });
    expect(error.message).toContain(
      'the budget a (0.5 credits left). The request was not sent. Set the price',
    );
    expect('cost_at_most' in (error.budget ?? {})).toBe(false);
    const fixed = await refusal(ask([allowance('a', budget)], of));
    expect([fixed.next, fixed.message.includes('without a budget')]).toEqual([undefined, true]);
    // A higher limit does not help.
    expect(neededLimit(error, decimalOf(2))).toBeUndefined();
  });
});
