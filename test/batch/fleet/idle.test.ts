import { expect, it } from 'vitest';
import type { OpenedBatch } from '../../../src/batch/fleet/queued-row.ts';
import type { RowQueue } from '../../../src/batch/fleet/row-queue.ts';
import { Worker } from '../../../src/batch/fleet/worker.ts';
import type { WorkerWatcher } from '../../../src/batch/row-runner.ts';
import { MgwError } from '../../../src/errors.ts';
import { fakeClock } from '../../jobs/harness.ts';

const away = new MgwError('unreachable', 'The ledger does not respond.');

/**
 * Runs a worker whose queue fails the first `outages` times and whose only batch fails to open the first `tries` times.
 * With `retryAfterMs`, the batch opens, but the gateway accepts no submissions for that time.
 */
async function work(
  outages: number,
  error = away,
  { tries = 0, why = away, maxIdleMs = 5000, retryAtMs = 0, retryAfterMs = 0 } = {},
): Promise<{ seconds: number; stopped?: MgwError; notes: string[] }> {
  const clock = fakeClock();
  const notes: string[] = [];
  let remaining = outages;
  const answer = (): Promise<never[]> =>
    (remaining -= 1) >= 0 ? Promise.reject(error) : Promise.resolve([]);
  let triesLeft = tries;
  const batch = { name: 'clips', head: { gateway: '', concurrency: 1 } };
  let looksAgain = (): void => undefined;
  const availableBatches = (): Promise<unknown[]> => {
    looksAgain();
    const retryMs = retryAtMs - clock.monotonic();
    if (retryMs > 0) return Promise.resolve([{ ...batch, retryMs }]);
    return Promise.resolve(triesLeft > 0 ? [batch] : []);
  };
  const row = { batch: 'clips', id: 'a', content: 'damaged' };
  const claim = (_: string, __: number, ids = ['a']): Promise<unknown[]> =>
    Promise.resolve(ids.map(() => row));
  const idsWithJob = (): Promise<string[]> => Promise.resolve([]);
  const done = (): Promise<void> => Promise.resolve();
  const queue = {
    recover: answer,
    availableBatches,
    claim,
    idsWithJob,
    recordEnd: done,
  } as unknown as RowQueue;
  const watcher = {
    alive: () => undefined,
    bad: () => undefined,
    note: (text: string) => notes.push(text),
  } as unknown as WorkerWatcher;
  const { signal } = new AbortController();
  const opened = {
    batch: {},
    plan: {},
    job: { signals: { soft: signal, hard: signal } },
    options: { timeoutMs: 60_000, pace: { limit: 1, delayMs: retryAfterMs, close: done } },
    withNeededLimit: (stopped: MgwError) => Promise.resolve(stopped),
  } as unknown as OpenedBatch;
  // Resolves after the worker has checked whether it is idle.
  const open = async (): Promise<OpenedBatch> => {
    triesLeft -= 1;
    await new Promise<void>((resolve) => (looksAgain = resolve));
    if (retryAfterMs > 0) return opened;
    throw why;
  };
  const worker = new Worker({ queue, gateway: '', concurrency: 1, maxIdleMs, clock, signal, open }, watcher);
  const stopped = await worker.run();
  return { seconds: clock.monotonic() / 1000, stopped, notes };
}

it('a worker exits once it has been idle for maxIdleMs, not counting times when the database does not respond', async () => {
  expect((await work(0)).seconds).toBeLessThan(8);
  const { seconds, stopped, notes } = await work(100);
  expect(stopped).toBeUndefined();
  expect(notes).toHaveLength(100);
  expect(seconds).toBeGreaterThan(90);
});

it('a worker is not idle while it waits to retry a batch', async () => {
  const { notes } = await work(0, away, { tries: 3 });
  expect(notes).toEqual(Array(3).fill('clips: The ledger does not respond. Retrying in 15 s.'));
});

it('a worker is not idle while a Retry-After that is longer than --timeout pauses a batch', async () => {
  const { stopped, notes } = await work(0, away, { tries: 3, retryAfterMs: 3_600_000 });
  expect(stopped).toBeUndefined();
  expect(notes).toEqual(Array(3).fill(expect.stringMatching(/^clips: The gateway .* Retrying in 3600 s\.$/)));
});

it('a worker is not idle while a row that another worker returned waits for its retry', async () => {
  const { seconds } = await work(0, away, { retryAtMs: 30_000 });
  expect(seconds).toBeGreaterThan(34);
  expect(seconds).toBeLessThan(38);
});

it('a worker is idle while it retries a batch whose budget is used up', async () => {
  const why = new MgwError('budget', 'The budget is spent.');
  const { seconds, notes } = await work(0, away, { tries: 9, why, maxIdleMs: 150_000 });
  expect(notes).toHaveLength(3);
  expect(seconds).toBeLessThan(160);
});

it("a worker stops with the database's error if mgw cannot use the database", async () => {
  const refused = new MgwError('config', 'mgw cannot use the database.');
  expect((await work(1, refused)).stopped).toBe(refused);
});
