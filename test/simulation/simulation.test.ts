import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

const run = promisify(execFile);

// The run ends with an error if its first schedule does not replay exactly.
it('no schedule of the first seeds, and none that once failed, breaks a promise', async () => {
  const words = ['test/simulation/run.mjs', '--stories', '--seed', '1', '--runs', '15'];
  const { stdout } = await run(process.execPath, words);
  expect(stdout).toMatch(/^0 of 28 schedules broke a promise/);
});

it('every planted defect can still be put into the source', async () => {
  const print = "import { plants } from './test/simulation/plants.mjs'; console.log(JSON.stringify(plants))";
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', print]);
  const plants = Object.entries(JSON.parse(stdout) as Record<string, [string, string, string][]>);
  expect(plants.length).toBeGreaterThan(10);
  for (const [name, changes] of plants)
    for (const [file, from] of changes) expect(readFileSync(`src/${file}`, 'utf8'), name).toContain(from);
});
