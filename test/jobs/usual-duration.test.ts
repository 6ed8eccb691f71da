import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Job, JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { usualDurationMs } from '../../src/jobs/newest.ts';
import { newJobId } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';

const start = Date.parse('2026-01-01T00:00:00Z');
const owner = { pid: 1, start: '', host: 'h' };
let folder: string;
let ledger: Ledger;
let now: number;
let jobs: number;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-duration-'));
  now = start;
  jobs = 0;
  ledger = await openFileLedger(folder, () => now);
});

afterEach(() => rmSync(folder, { recursive: true }));

/** Returns the usual duration, in ms, as determined by a new process. */
function usualMs(of: Ledger, current: Job): Promise<number | undefined> {
  return usualDurationMs({ ...of }, current);
}

interface Made {
  request?: unknown;
  model?: string;
  base_url?: string;
  state?: 'succeeded' | 'failed';
}

async function job(
  seconds: number | undefined,
  { model = 'm', base_url = 'g', state = 'succeeded', request }: Made = {},
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
  if (seconds !== undefined) {
    now = submitted + seconds * 1000;
    await ledger.append(id, { type: 'finished', state, native_status: 'x' });
  }
  const made = await ledger.read(id);
  if (made === undefined) throw new Error('not recorded');
  return made;
}

it("the usual duration is the median of the model's earlier jobs", async () => {
  for (const seconds of [100, 3000, 120, 90, 130]) await job(seconds);
  expect(await usualMs(ledger, await job(undefined))).toBe(120_000);
});

it('the usual duration ignores failed jobs, other models and gateways, and jobs queried hours after their end', async () => {
  await job(50);
  await job(1, { state: 'failed' });
  await job(2, { model: 'other' });
  await job(3, { base_url: 'elsewhere' });
  await job(3601);
  expect(await usualMs(ledger, await job(undefined))).toBe(50_000);
});

it('the usual duration is undefined without earlier jobs', async () => {
  expect(await usualMs(ledger, await job(undefined))).toBeUndefined();
});

it('the usual duration is computed only from the newest records', async () => {
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

it('the usual duration is that of jobs with the same size, if there are any', async () => {
  const size = (duration: number): Made => ({ request: { duration, prompt: `a boat ${jobs}` } });
  for (const seconds of [40, 42, 44]) await job(seconds, size(5));
  for (const seconds of [90, 92, 94]) await job(seconds, size(10));
  expect(await usualMs(ledger, await job(undefined, size(5)))).toBe(42_000);
  expect(await usualMs(ledger, await job(undefined, size(10)))).toBe(92_000);
  expect([44_000, 90_000]).toContain(await usualMs(ledger, await job(undefined, size(15))));
});
