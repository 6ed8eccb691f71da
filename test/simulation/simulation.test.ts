import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

// The run ends with an error if its first schedule does not replay exactly.
it('no schedule of the first seeds, and none that once failed, breaks a promise', async () => {
  const words = ['test/simulation/run.mjs', '--stories', '--seed', '1', '--runs', '29'];
  const { stdout } = await promisify(execFile)(process.execPath, words);
  expect(stdout).toMatch(/^0 of 40 schedules broke a promise/);
});
