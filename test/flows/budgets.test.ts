import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect, it } from 'vitest';
import { budgetPath } from '../../src/budget/file-budget.ts';
import { budgetsIn } from '../../src/flows/budgets.ts';
import { freshFolder } from '../support/servers.ts';

it('each file in a budget folder is a budget, and an unreadable folder is an error', async () => {
  const folder = join(freshFolder(), 'budgets');
  expect(await budgetsIn(folder)).toEqual([]);
  mkdirSync(folder);
  for (const name of ['b%20c.jsonl', 'a.jsonl', 'a.lock']) writeFileSync(join(folder, name), '');
  expect(await budgetsIn(folder)).toEqual(['a', 'b c']);
  await expect(budgetsIn(join(folder, 'a.jsonl'))).rejects.toMatchObject({ code: 'local_io', retry: 'safe' });
});

it("a budget whose name is too long for a file name is stored in a file named after the name's hash", () => {
  const fileOf = (length: number): string => basename(budgetPath('/state', 'standing', 'x'.repeat(length)));
  expect([fileOf(200), fileOf(201)]).toEqual([
    `${'x'.repeat(200)}.jsonl`,
    expect.stringMatching(/^long-[\da-f]{64}\.jsonl$/),
  ]);
});
