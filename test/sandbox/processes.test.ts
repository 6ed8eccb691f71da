import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { expect, test } from 'vitest';
import { readBill, totalOf } from '../../src/sandbox/bill.ts';
import type { SandboxOptions } from '../../src/sandbox/server.ts';
import { listTasks } from '../../src/sandbox/tasks.ts';
import { freshState } from './harness.ts';

/** A program with its own sandbox that submits fifteen times and prints each response's status. */
const PROGRAM = `
  import { startSandbox } from './server.mjs';
  const sandbox = await startSandbox({ stateDir: process.argv[2], ...JSON.parse(process.argv[3]) });
  const headers = { Authorization: 'Bearer ' + sandbox.key, 'Content-Type': 'application/json' };
  const statuses = [];
  for (let count = 0; count < 15; count += 1) {
    const body = JSON.stringify({ model: 'vendor-h3', prompt: process.pid + ' ' + count + ' ' + 'x'.repeat(count * 100) });
    statuses.push((await fetch(sandbox.url + '/v1/videos', { method: 'POST', headers, body })).status);
  }
  await sandbox.close();
  console.log(JSON.stringify(statuses));
`;

/** Runs two copies of the program at once with one state folder. Returns the statuses of all 30 responses. */
async function together(state: string, options: Partial<SandboxOptions>): Promise<number[]> {
  const folder = join(dirname(state), 'program');
  mkdirSync(folder);
  await build({
    input: 'src/sandbox/server.ts',
    platform: 'node',
    output: { file: join(folder, 'server.mjs'), format: 'esm' },
    logLevel: 'silent',
  });
  const program = join(folder, 'program.mjs');
  writeFileSync(program, PROGRAM);
  const run = async (): Promise<number[]> => {
    const { stdout } = await promisify(execFile)(process.execPath, [program, state, JSON.stringify(options)]);
    return JSON.parse(stdout) as number[];
  };
  return (await Promise.all([run(), run()])).flat();
}

test('several sandbox processes share tasks, bill, balance and fault counts without losing anything', async () => {
  const state = freshState();
  // Each task costs 50 credits.
  const statuses = await together(state, { faults: ['submit-429x7'], limits: { balance: 750 } });
  expect(statuses.filter((status) => status === 429)).toHaveLength(7);
  expect(statuses.filter((status) => status === 200)).toHaveLength(15);
  const charged = readBill(state).map(({ task }) => task);
  expect(totalOf(readBill(state))).toBe(750);
  expect(new Set(charged).size).toBe(15);
  expect(listTasks(state).map(({ id }) => id)).toEqual([...charged].sort());
});
