import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { Machine } from './machine.ts';
import { stories } from './stories.ts';
import type { Threads } from './threads.ts';

const run = promisify(execFile);

// The run also fails if its first schedule does not replay exactly.
it('no schedule of the first seeds or of an earlier failure breaks a promise', async () => {
  const words = ['test/simulation/run.mjs', '--stories', '--seed', '1', '--runs', '5'];
  const { stdout } = await run(process.execPath, words);
  const count = Object.keys(stories).length + 5;
  expect(stdout).toMatch(new RegExp(`^0 of ${count} schedules broke a promise`));
});

// A story that no longer reveals its defect proves nothing. A run with a broken promise exits with 1.
it('a story reveals the defect late-poll in a changed source', async () => {
  const words = ['test/simulation/run.mjs', '--stories', '--plant', 'late-poll'];
  const { stdout } = await run(process.execPath, words).catch(
    (error: unknown) => error as { stdout: string },
  );
  expect(stdout).toMatch(/^seed 1: a running job failed/);
});

it('an incident happens before its call, and is reported as missed if the call is never made', async () => {
  const take = () => {
    const calls = ['/a', '/b', '/a'].map((path) => ({ name: 'stat', args: [path] }));
    return {
      resume: () => ({
        started: [],
        ended: [],
        exit: calls.length === 0 ? 0 : undefined,
        call: calls.shift(),
      }),
    };
  };
  const threads = { take, giveBack: () => undefined } as unknown as Threads;
  const machine = new Machine(threads, 1, {}, true);
  const incidents = [
    { process: 1, before: 'stat /b', what: 'next starts' },
    { process: 2, before: 'stat /a', what: 'kill' },
    { process: 1, before: 'stat /b', what: 'switch' },
  ] as const;
  await machine.run([['one'], ['two']], incidents);
  expect(machine.log.map((line) => line.replace(/^\d+: /, ''))).toEqual([
    'process 1 starts: mgw one',
    '1: stat /a',
    'process 2 starts: mgw two',
    JSON.stringify(incidents[1]),
    'process 2 ends with killed',
    '1: stat /b',
    '1: stat /a',
    'process 1 ends with 0',
  ]);
  expect(machine.missed).toEqual(['process 1 did not make the call: stat /b']);
});
