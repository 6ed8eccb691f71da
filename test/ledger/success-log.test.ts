import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { newJobId } from '../../src/ledger/job-id.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { freshFolder } from '../support/servers.ts';

const prepared: JobEvent = {
  type: 'prepared',
  protocol: 'a',
  base_url: 'https://gateway.example',
  fingerprint: 'f1',
  account: 'a1',
};
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const ended = (state: 'succeeded' | 'failed'): JobEvent => ({ type: 'finished', state, native_status: 'x' });

/** A ledger of three jobs: one that is running, one that failed, one that succeeded. */
async function made(): Promise<{ ledger: Ledger; state: string; ids: string[] }> {
  const state = freshFolder();
  const ledger = await openFileLedger(state, () => 1);
  const ids = [1, 2, 3].map((at) => newJobId(at));
  for (const id of ids) await ledger.create(id, [prepared, accepted]);
  await ledger.append(ids[1] ?? '', ended('failed'));
  await ledger.append(ids[2] ?? '', ended('succeeded'));
  return { ledger, state, ids };
}

async function unfinished(ledger: Ledger): Promise<string[]> {
  return (await ledger.listed({ leaveOutSucceeded: true })).slice();
}

it('leaves out what has succeeded, whoever recorded it, and nothing else', async () => {
  const { ledger, state, ids } = await made();
  const other = await openFileLedger(state, () => 1);
  const open = ids.slice(0, 2).reverse();
  for (const each of [ledger, other]) expect(await unfinished(each)).toEqual(open);
  expect(await other.ids()).toEqual([...ids].reverse());
  await ledger.append(ids[0] ?? '', ended('succeeded'));
  expect(await unfinished(other)).toEqual([ids[1]]);
});

it('learns what it has lost from the jobs as they are read', async () => {
  const { state, ids } = await made();
  rmSync(join(state, 'succeeded.log'));
  appendFileSync(join(state, 'succeeded.log'), 'job_to');
  const ledger = await openFileLedger(state, () => 1);
  expect(await unfinished(ledger)).toHaveLength(3);
  for (const id of ids) await ledger.read(id);
  expect(await unfinished(ledger)).toHaveLength(2);
});

it('is no reason to fail where it cannot be written', async () => {
  const { ledger, state, ids } = await made();
  rmSync(join(state, 'succeeded.log'));
  mkdirSync(join(state, 'succeeded.log'));
  await ledger.append(ids[0] ?? '', ended('succeeded'));
  expect(await ledger.read(ids[0] ?? '')).toMatchObject({ state: 'succeeded' });
  expect(await unfinished(ledger)).toHaveLength(3);
});
