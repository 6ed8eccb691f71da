import { join } from 'node:path';
import { expect, it } from 'vitest';
import { copyJobs } from '../../src/flows/copy-state.ts';
import type { JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { holderText, names, newJobId } from '../../src/ledger/names.ts';
import { deadOwner } from '../jobs/harness.ts';
import { accepted, now, prepared } from '../ledger/conformance.ts';
import { freshFolder } from '../support/servers.ts';

const owner = deadOwner();
const [gone, next] = [newJobId(now), newJobId(now + 1)];
const sending: JobEvent = { type: 'sending', attempt: 1, owner };

async function ledgers(): Promise<[from: Ledger, to: Ledger]> {
  const folder = freshFolder();
  return [
    await openFileLedger(join(folder, 'one'), () => now),
    await openFileLedger(join(folder, 'two'), () => now),
  ];
}

/** Adds a job whose key first named a job that was then removed. */
async function fill(ledger: Ledger): Promise<void> {
  const { fingerprint } = prepared as { fingerprint: string };
  const holder = (job: string): string => holderText({ job, fingerprint, owner });
  await ledger.claim('key.boat', holder(gone));
  await ledger.create(gone, [{ ...prepared, key: 'boat' }]);
  await ledger.remove(gone);
  await ledger.claim(names.after(gone), holder(next));
  await ledger.create(next, [{ ...prepared, key: 'boat' }, sending, accepted]);
  await ledger.claim(names.attempt(next, 1), JSON.stringify(owner));
  await ledger.confirm(names.attempt(next, 1));
  await ledger.claim(names.attempt(next, 2), JSON.stringify(owner));
}

it('every claim is copied with its confirmation, and a removed claim stays removed', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  expect([await copyJobs(from, to), await copyJobs(from, to)]).toEqual([1, 0]);
  for (const name of ['key.boat', names.after(gone), names.attempt(next, 1), names.attempt(next, 2)])
    expect(await to.claimed(name), name).toBe(await from.claimed(name));
  const confirmed = [1, 2].map((attempt) => to.isConfirmed(names.attempt(next, attempt)));
  expect(await Promise.all(confirmed)).toEqual([true, false]);
  expect([await to.fateOf(gone), await to.fateOf(next)]).toEqual(['removed', 'there']);
  expect(await to.create(gone, [prepared])).toBe(false);
});

it('a job that is removed during the copy is not copied', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  const before = { ...from, ids: () => Promise.resolve([next, newJobId(now - 1)]) };
  expect(await copyJobs(before, to)).toBe(1);
  expect(await to.ids()).toEqual([next]);
});

it('a claim that belongs to another job in the target is a conflict', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  await to.claim('key.boat', 'of another job');
  await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict' });
  expect(await to.claimed('key.boat')).toBe('of another job');
});

it('a record that has other events in the target is a conflict', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  await to.create(next, [{ ...prepared, key: 'boat' }]);
  await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict' });
});
