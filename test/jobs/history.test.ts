import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Job, JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { historyOf } from '../../src/jobs/history.ts';
import { newJobId } from '../../src/ledger/job-id.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';

const start = Date.parse('2026-01-01T00:00:00Z');
const owner = { pid: 1, start: '', host: 'h' };
let folder: string;
let ledger: Ledger;
let now: number;
let jobs: number;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-history-'));
  now = start;
  jobs = 0;
  ledger = await openFileLedger(folder, () => now);
});

afterEach(() => rmSync(folder, { recursive: true }));

/** As a process that has just started sees it. */
async function usualMs(of: Ledger, current: Job): Promise<number | undefined> {
  return (await historyOf({ ...of }, current)).usualMs;
}

interface Made {
  request?: unknown;
  gap_ms?: number;
  /** What was told of it on the way: after so many seconds, so many percent. */
  progress?: [number, number][];
  model?: string;
  base_url?: string;
  state?: 'succeeded' | 'failed';
}

async function job(
  seconds: number | undefined,
  { model = 'm', base_url = 'g', state = 'succeeded', request, gap_ms, progress = [] }: Made = {},
): Promise<Job> {
  jobs += 1;
  now = start + jobs * 10_000_000;
  const id = newJobId(now);
  const prepared: JobEvent = {
    type: 'prepared',
    protocol: 'c',
    base_url,
    fingerprint: '',
    account: '',
    model,
    request,
  };
  await ledger.create(id, [
    prepared,
    { type: 'sending', attempt: 1, owner },
    { type: 'accepted', handle: id },
  ]);
  const submitted = now;
  for (const [after, percent] of progress) {
    now = submitted + after * 1000;
    await ledger.append(id, { type: 'observed', state: 'running', native_status: 'x', progress: percent });
  }
  if (seconds !== undefined) {
    now = submitted + seconds * 1000;
    await ledger.append(id, { type: 'finished', state, native_status: 'x', gap_ms });
  }
  const made = await ledger.read(id);
  if (made === undefined) throw new Error('not recorded');
  return made;
}

it('is the median of what earlier jobs of the model took', async () => {
  for (const seconds of [100, 3000, 120, 90, 130]) await job(seconds);
  expect(await usualMs(ledger, await job(undefined))).toBe(120_000);
});

it('counts neither failures, other models and gateways, nor what was asked for hours later', async () => {
  await job(50);
  await job(1, { state: 'failed' });
  await job(2, { model: 'other' });
  await job(3, { base_url: 'elsewhere' });
  await job(3601);
  expect(await usualMs(ledger, await job(undefined))).toBe(50_000);
});

it('is not known without any', async () => {
  expect(await usualMs(ledger, await job(undefined))).toBeUndefined();
});

it('reads the newest records only, however many there are', async () => {
  for (let i = 0; i < 50; i += 1) await job(i < 10 ? 1000 : 20);
  const current = await job(undefined);
  const read: string[] = [];
  const counting = { ...ledger, read: (id: string) => (read.push(id), ledger.read(id)) };
  expect(await usualMs(counting, current)).toBe(20_000);
  expect(read).toHaveLength(41);
  for (let i = 0; i < 110; i += 1) await job(5, { model: 'other' });
  read.length = 0;
  expect(await usualMs(counting, current)).toBeUndefined();
  expect(read).toHaveLength(100);
});

it('goes by jobs of the same size where there are some', async () => {
  const size = (duration: number): Made => ({ request: { duration, prompt: `a boat ${jobs}` } });
  for (const seconds of [40, 42, 44]) await job(seconds, size(5));
  for (const seconds of [90, 92, 94]) await job(seconds, size(10));
  expect(await usualMs(ledger, await job(undefined, size(5)))).toBe(42_000);
  expect(await usualMs(ledger, await job(undefined, size(10)))).toBe(92_000);
  expect([44_000, 90_000]).toContain(await usualMs(ledger, await job(undefined, size(15))));
});

it('lets a poll fall where earlier jobs ended, and not where it was merely seen that they had', async () => {
  // All may have ended between 65 and 66 s.
  for (let i = 0; i < 20; i += 1) await job(i % 2 === 0 ? 66 : 71, { gap_ms: 6000 });
  const { byTime } = await recorded();
  expect(58_000 + (byTime(58_000) ?? NaN)).toBeGreaterThan(65_500);
  expect(58_000 + (byTime(58_000) ?? NaN)).toBeLessThan(67_500);
});

it('corrects what percentages tell by how far those of earlier jobs were out', async () => {
  // A hundred percent would come after 89 s, and the end comes at 90 %.
  const progress = [20, 40, 60, 79].map((after): [number, number] => [after, (after / 80) * 90]);
  for (let i = 0; i < 20; i += 1) await job(80.5, { progress, gap_ms: 1500 });
  const { byProgress } = await recorded();
  expect(-16_000 + (byProgress(-16_000) ?? NaN)).toBeGreaterThan(-9000);
  expect(-16_000 + (byProgress(-16_000) ?? NaN)).toBeLessThan(-7000);
});

it('says nothing of progress that was never told', async () => {
  for (let i = 0; i < 5; i += 1) await job(60);
  const { byProgress } = await recorded();
  expect(byProgress(0)).toBeUndefined();
});

async function recorded(): Promise<Record<'byTime' | 'byProgress', (at: number) => number | undefined>> {
  const history = await historyOf({ ...ledger }, await job(undefined));
  return {
    byTime: (at) => history.byTime(5000)?.pauseMs(at),
    byProgress: (at) => history.byProgress(5000)?.pauseMs(at),
  };
}
