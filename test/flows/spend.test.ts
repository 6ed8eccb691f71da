import { expect, it } from 'vitest';
import { formatDecimal } from '../../src/decimal.ts';
import {
  addUp,
  costOutsideBudget,
  disputedFiles,
  spendBy,
  type DisputedFile,
} from '../../src/flows/spend.ts';
import type { JobEvent, JobFile } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { newJobId } from '../../src/ledger/names.ts';
import type { PricedOrder } from '../../src/payment/reserve.ts';
import { freshFolder } from '../support/servers.ts';

const day = 24 * 3600 * 1000;
const start = Date.parse('2026-11-20T12:00:00Z');

/** Creates a ledger with jobs of the given creation times, keys and events. */
async function ledgerWith(...jobs: { at?: number; key?: string; events: JobEvent[] }[]): Promise<Ledger> {
  let now = start;
  const ledger = await openFileLedger(freshFolder(), () => now);
  for (const { at = start, key, events } of jobs) {
    now = at;
    const prepared = { type: 'prepared', protocol: 'c', base_url: '', fingerprint: '', account: '' } as const;
    await ledger.create(newJobId(at), [{ ...prepared, model: 'm', ...(key && { key }) }, ...events]);
  }
  return ledger;
}

async function disputedIn(ledger: Ledger, since?: string): Promise<DisputedFile[]> {
  const found: DisputedFile[] = [];
  for await (const each of disputedFiles(ledger, since)) found.push(each);
  return found;
}

const sending = (at_most?: string): JobEvent => ({
  ...{ type: 'sending', attempt: 1, owner: { pid: 1, start: '', host: '' } },
  ...(at_most !== undefined && { cost: { at_most } }),
});
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const failed: JobEvent = { type: 'finished', state: 'failed', native_status: '' };

it('mgw spend adds up the cost of jobs since a given time, by group and in total', async () => {
  const ledger = await ledgerWith(
    { key: 'b', events: [sending('1'), accepted] },
    { key: 'a', at: start + 1, events: [sending('2'), accepted, failed] },
    { at: start + day, events: [sending('4')] },
    { key: 'a', at: start + day + 1, events: [sending(), accepted] },
    { at: start + day + 2, events: [] },
  );
  const none = { charges: 0, amount: '0' };
  const unpriced = { charges: 1, amount: 'unknown', known: '0', unpriced: 1 };
  expect(await spendBy(ledger, 'key', '')).toEqual({
    by: 'key',
    rows: [
      { key: null, spent: none, failed: none, doubt: { charges: 1, amount: '4' } },
      { key: 'a', spent: unpriced, failed: { charges: 1, amount: '2' }, doubt: none },
      { key: 'b', spent: { charges: 1, amount: '1' }, failed: none, doubt: none },
    ],
    total: {
      spent: { charges: 2, amount: 'unknown', known: '1', unpriced: 1 },
      failed: { charges: 1, amount: '2' },
      doubt: { charges: 1, amount: '4' },
    },
  });
  const later = await addUp(ledger, 'day', '2026-11-21');
  expect(later.groups.map(([name]) => name)).toEqual(['2026-11-21']);
  expect([later.total.doubt.charges, later.total.spent.charges]).toEqual([1, 1]);
  const exact = await addUp(ledger, 'day', '2026-11-21T12:00:00.000Z');
  expect(formatDecimal(exact.total.doubt.known)).toBe('4');
});

it("the cost of a batch outside its budget includes earlier runs without a budget, at today's price if needed", async () => {
  const ledger = await ledgerWith(
    { key: 'b/1', events: [sending('1'), accepted] },
    { key: 'b/2', events: [{ ...sending('2'), budgets: ['clips', 'batch b'] } as JobEvent, accepted] },
    { key: 'b/3', events: [{ ...sending('4'), budgets: ['clips'] } as JobEvent] },
    { key: 'c/1', events: [sending('8'), accepted] },
    { key: 'b/4', events: [sending(), accepted] },
  );
  const at = (cost?: { at_most: string }) => (): Promise<PricedOrder> =>
    Promise.resolve({ subject: 'm (Protocol C)', cost, priceCommand: ['mgw', 'config', 'set'] });
  const cost = await costOutsideBudget('b', { ledger, priceOf: at({ at_most: '16' }) });
  expect(formatDecimal(cost)).toBe('21');
  await expect(costOutsideBudget('b', { ledger, priceOf: at() })).rejects.toMatchObject({
    ...{ code: 'budget', retry: 'safe', next: ['mgw', 'config', 'set'] },
    message: expect.stringContaining('No price is known for m (Protocol C), which earlier runs') as string,
  });
});

it('mgw spend ignores a job that is removed while mgw reads the ledger', async () => {
  const ledger = await ledgerWith({ events: [sending('1'), accepted] });
  const ids = [newJobId(start), ...(await ledger.ids())];
  const { total } = await addUp({ ...ledger, ids: () => Promise.resolve(ids) }, 'key', '');
  expect(total.spent.charges).toBe(1);
});

it('mgw spend --disputed prints the evidence once for each file that differs from its request', async () => {
  const file = (path: string, more: Partial<JobFile> = {}): JobEvent => ({
    type: 'file',
    file: {
      ...{ path, bytes: 1, sha256: 'a', delivered: { duration: 4, audio: true } },
      ...{ mismatches: [{ field: 'duration', asked: 5, delivered: 4 }], ...more },
    },
  });
  const reply = (id: string): JobEvent => ({
    ...{ type: 'reply', attempt: 1 },
    reply: { status: 200, headers: { 'x-request-id': id }, text: '{}', complete: true },
  });
  const done: JobEvent = { type: 'finished', state: 'succeeded', native_status: '', results: 1 };
  const ledger = await ledgerWith(
    {
      events: [
        ...[sending('1'), reply('r1'), { ...sending('2'), attempt: 2 } as JobEvent, reply('r2'), accepted],
        ...[reply('late'), done, file('/a'), file('/copy'), file('/b', { sha256: 'b' })],
        ...[
          file('/marked', { sha256: 'c', unmarked_sha256: 'a' }),
          file('/good', { sha256: 'd', mismatches: undefined }),
          file('/marked-first', { sha256: 'f', unmarked_sha256: 'e' }),
          file('/plain', { sha256: 'e' }),
        ],
      ],
    },
    { at: start + day, events: [accepted, done, file('/c')] },
    { at: start + day + 1, events: [accepted, done, file('/d', { mismatches: undefined })] },
  );
  const all = await disputedIn(ledger);
  expect(all.map(({ path }) => path)).toEqual(['/c', '/a', '/b', '/marked-first']);
  expect(all[1]).toMatchObject({
    ...{ model: 'm', task: 'task_1', request_id: 'r2', price: '2', sha256: 'a' },
    ...{ delivered: { duration: 4 }, mismatches: [{ field: 'duration' }] },
    ...{ submitted_at: new Date(start).toISOString(), finished_at: new Date(start).toISOString() },
  });
  expect(all[0]).toMatchObject({ request_id: undefined, price: undefined });
  const since = await disputedIn(ledger, '2026-11-21');
  expect(since.map(({ path }) => path)).toEqual(['/c']);
});
