import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { budgetsIn } from '../../src/flows/budgets.ts';
import { freshFolder } from '../support/servers.ts';

it('the budgets of a folder are its files, and a folder that cannot be read is an error', async () => {
  const folder = join(freshFolder(), 'budgets');
  expect(await budgetsIn(folder)).toEqual([]);
  mkdirSync(folder);
  for (const name of ['b%20c.jsonl', 'a.jsonl', 'a.lock']) writeFileSync(join(folder, name), '');
  expect(await budgetsIn(folder)).toEqual(['a', 'b c']);
  await expect(budgetsIn(join(folder, 'a.jsonl'))).rejects.toMatchObject({ code: 'local_io', retry: 'safe' });
});
