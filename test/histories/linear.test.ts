import { expect, it } from 'vitest';
import { budgetOf, isLinearizable, keyed, type BudgetInput, type Operation } from './linear.ts';

const at = <Input, Output>(startedAt: number, endedAt: number, input: Input, output: Output) => ({
  ...{ startedAt, endedAt, input, output },
});

it.each<[string, boolean, Operation<BudgetInput, boolean | number>[]]>([
  ['no operations', true, []],
  ['a reservation that fits', true, [at(0, 1, { reserve: 2 }, true)]],
  ['a reservation that fits but is refused', false, [at(0, 1, { reserve: 2 }, false)]],
  [
    'two concurrent reservations, one of which fits',
    true,
    [at(0, 9, { reserve: 2 }, true), at(0, 9, { reserve: 2 }, false)],
  ],
  [
    'two concurrent reservations that are both granted',
    false,
    [at(0, 9, { reserve: 2 }, true), at(0, 9, { reserve: 2 }, true)],
  ],
  [
    'a refusal before the reservation that causes it',
    false,
    [at(0, 1, { reserve: 2 }, false), at(2, 3, { reserve: 2 }, true)],
  ],
  [
    'a refusal during the reservation that causes it',
    true,
    [at(0, 3, { reserve: 2 }, false), at(2, 4, { reserve: 2 }, true)],
  ],
  ['a read that misses an earlier reservation', false, [at(0, 1, { reserve: 2 }, true), at(2, 3, 'read', 0)]],
  ['reads that decrease', false, [at(0, 9, { reserve: 2 }, true), at(1, 2, 'read', 2), at(3, 4, 'read', 0)]],
  ['reads that increase', true, [at(0, 9, { reserve: 2 }, true), at(1, 2, 'read', 0), at(3, 4, 'read', 2)]],
])('a possible history of a budget of 3 can contain %s: %s', (_, isAllowed, history) => {
  expect(isLinearizable(history, 0, budgetOf(3))).toBe(isAllowed);
});

it.each<[string, boolean, Operation<'submit' | 'remove', string>[]]>([
  ['two submissions that return one job', true, [at(0, 3, 'submit', 'a'), at(1, 2, 'submit', 'a')]],
  ['two submissions that return different jobs', false, [at(0, 3, 'submit', 'a'), at(1, 2, 'submit', 'b')]],
  [
    'a different job after a removal',
    true,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'remove', 'a'), at(4, 5, 'submit', 'b')],
  ],
  [
    'a different job before the removal',
    false,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'submit', 'b'), at(4, 5, 'remove', 'a')],
  ],
  [
    'a submission that returns a removed job',
    false,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'remove', 'a'), at(4, 5, 'submit', 'b'), at(6, 7, 'submit', 'a')],
  ],
])('a possible history of a key can contain %s: %s', (_, isAllowed, history) => {
  expect(isLinearizable(history, '', keyed)).toBe(isAllowed);
});
