import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Outcome, Task } from '../../src/sandbox/tasks.ts';
import { findTask, progressOf } from '../../src/sandbox/tasks.ts';
import { sandbox } from './harness.ts';

const RANK = { queued: 0, running: 1, succeeded: 2, failed: 2 };
const OUTCOMES: Outcome[] = [
  { end: 'succeeds', filtered: 0 },
  { end: 'fails', reason: 'failed', message: 'x' },
  { end: 'never' },
];

test('a sandbox task never returns to an earlier state, and reaches its planned outcome on time', () => {
  const times = fc.tuple(fc.nat(100_000), fc.nat(100_000), fc.nat(50_000));
  fc.assert(
    fc.property(times, fc.constantFrom(...OUTCOMES), ([first, second, paceMs], outcome) => {
      const task = { createdAt: 1000, paceMs, outcome } as Task;
      const [early, late] = [Math.min(first, second), Math.max(first, second)];
      const [before, after] = [progressOf(task, 1000 + early), progressOf(task, 1000 + late)];
      expect(RANK[after.state]).toBeGreaterThanOrEqual(RANK[before.state]);
      expect(after.percent).toBeGreaterThanOrEqual(before.percent);
      expect(RANK[after.state] === 2).toBe(late >= paceMs && outcome.end !== 'never');
      expect(after.percent === 100).toBe(RANK[after.state] === 2);
      expect(after.state === 'succeeded').toBe(RANK[after.state] === 2 && outcome.end === 'succeeds');
    }),
    { numRuns: 50 },
  );
});

test('sandbox task ids are the same for the same seed, and unique in a state folder', async () => {
  const submit = async (gateway: Awaited<ReturnType<typeof sandbox>>): Promise<unknown> =>
    (await gateway.call('POST', '/v1/videos', { body: { model: 'vendor-h3', prompt: 'x' } })).at('id');
  const [one, other, unseeded] = [await sandbox({ seed: 7 }), await sandbox({ seed: 7 }), await sandbox()];
  const ids = [await submit(one), await submit(one)];
  expect([await submit(other), await submit(other)]).toEqual(ids);
  expect(ids[0]).not.toBe(ids[1]);
  expect(await submit(unseeded)).not.toBe(ids[0]);
});

test('a sandbox task is found only by its id, and only with the protocol of its submission', async () => {
  const gateway = await sandbox();
  const submitted = await gateway.call('POST', '/v1/videos', { body: { model: 'vendor-h3', prompt: 'x' } });
  const id = submitted.at('id') as string;
  const found = (['a', 'b', 'c'] as const).map((area) => findTask(gateway.stateDir, area, id)?.id);
  expect(found).toEqual([undefined, undefined, id]);
  for (const other of ['../bill', '..', '', 'a/b', 'a\0b', 'x'.repeat(101)])
    expect(findTask(gateway.stateDir, 'c', other)).toBeUndefined();
});
