import { expect, it } from 'vitest';
import { budgetOf, isLinearizable, keyed, type BudgetInput, type Operation } from './linear.ts';

const at = <Input, Output>(asked: number, answered: number, input: Input, output: Output) => ({
  ...{ asked, answered, input, output },
});

it.each<[string, boolean, Operation<BudgetInput, boolean | number>[]]>([
  ['nothing', true, []],
  ['one that fits', true, [at(0, 1, { reserve: 2 }, true)]],
  ['one that fits and is refused', false, [at(0, 1, { reserve: 2 }, false)]],
  ['two at once, one of which fits', true, [at(0, 9, { reserve: 2 }, true), at(0, 9, { reserve: 2 }, false)]],
  [
    'two at once that are both granted',
    false,
    [at(0, 9, { reserve: 2 }, true), at(0, 9, { reserve: 2 }, true)],
  ],
  [
    'a refusal before the payment that causes it',
    false,
    [at(0, 1, { reserve: 2 }, false), at(2, 3, { reserve: 2 }, true)],
  ],
  [
    'a refusal during the payment that causes it',
    true,
    [at(0, 3, { reserve: 2 }, false), at(2, 4, { reserve: 2 }, true)],
  ],
  ['a read that misses an earlier grant', false, [at(0, 1, { reserve: 2 }, true), at(2, 3, 'read', 0)]],
  ['reads that decrease', false, [at(0, 9, { reserve: 2 }, true), at(1, 2, 'read', 2), at(3, 4, 'read', 0)]],
  ['reads that increase', true, [at(0, 9, { reserve: 2 }, true), at(1, 2, 'read', 0), at(3, 4, 'read', 2)]],
])('the check of a budget of 3 accepts the history "%s": %s', (_, isAllowed, history) => {
  expect(isLinearizable(history, 0, budgetOf(3))).toBe(isAllowed);
});

it.each<[string, boolean, Operation<'submit' | 'remove', string>[]]>([
  ['one job for all', true, [at(0, 3, 'submit', 'a'), at(1, 2, 'submit', 'a')]],
  ['two jobs', false, [at(0, 3, 'submit', 'a'), at(1, 2, 'submit', 'b')]],
  [
    'another job after a removal',
    true,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'remove', 'a'), at(4, 5, 'submit', 'b')],
  ],
  [
    'another job before the removal',
    false,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'submit', 'b'), at(4, 5, 'remove', 'a')],
  ],
  [
    'the removed job again',
    false,
    [at(0, 1, 'submit', 'a'), at(2, 3, 'remove', 'a'), at(4, 5, 'submit', 'b'), at(6, 7, 'submit', 'a')],
  ],
])('the check of a key accepts the history "%s": %s', (_, isAllowed, history) => {
  expect(isLinearizable(history, '', keyed)).toBe(isAllowed);
});
