import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

it('every defect in plants.mjs can still be put into the source', async () => {
  type Change = [file: string, from: string, to: string];
  const module = new URL('./plants.mjs', import.meta.url).href;
  const { plants } = (await import(module)) as { plants: Record<string, Change[]> };
  expect(Object.keys(plants).length).toBeGreaterThan(10);
  for (const [name, changes] of Object.entries(plants))
    for (const [file, from] of changes) expect(readFileSync(`src/${file}`, 'utf8'), name).toContain(from);
});
