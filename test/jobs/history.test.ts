import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Job, JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { usualDurationMs } from '../../src/jobs/history.ts';
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

interface Made {
  model?: string;
  base_url?: string;
  state?: 'succeeded' | 'failed';
}

async function job(
  seconds: number | undefined,
  { model = 'm', base_url = 'g', state = 'succeeded' }: Made = {},
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
  };
  await ledger.create(id, [
    prepared,
    { type: 'sending', attempt: 1, owner },
    { type: 'accepted', handle: id },
  ]);
  if (seconds !== undefined) {
    now += seconds * 1000;
    await ledger.append(id, { type: 'finished', state, native_status: 'x' });
  }
  const made = await ledger.read(id);
  if (made === undefined) throw new Error('not recorded');
  return made;
}

it('is the median of what earlier jobs of the model took', async () => {
  for (const seconds of [100, 3000, 120, 90, 130]) await job(seconds);
  expect(await usualDurationMs(ledger, await job(undefined))).toBe(120_000);
});

it('counts neither failures, other models and gateways, nor what was asked for hours later', async () => {
  await job(50);
  await job(1, { state: 'failed' });
  await job(2, { model: 'other' });
  await job(3, { base_url: 'elsewhere' });
  await job(3601);
  expect(await usualDurationMs(ledger, await job(undefined))).toBe(50_000);
});

it('is not known without any', async () => {
  expect(await usualDurationMs(ledger, await job(undefined))).toBeUndefined();
});

it('reads the newest records only, however many there are', async () => {
  for (let i = 0; i < 30; i += 1) await job(i < 10 ? 1000 : 20);
  const current = await job(undefined);
  const read: string[] = [];
  const counting = { ...ledger, read: (id: string) => (read.push(id), ledger.read(id)) };
  expect(await usualDurationMs(counting, current)).toBe(20_000);
  expect(read).toHaveLength(21);
  for (let i = 0; i < 110; i += 1) await job(5, { model: 'other' });
  read.length = 0;
  expect(await usualDurationMs(counting, current)).toBeUndefined();
  expect(read).toHaveLength(100);
});
