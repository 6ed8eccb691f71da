import { join } from 'node:path';
import { expect, it } from 'vitest';
import { copyState } from '../../src/flows/copy-state.ts';
import type { JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { follow } from '../../src/ledger/chain.ts';
import { holderText, names, newJobId } from '../../src/ledger/names.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { deadOwner } from '../jobs/harness.ts';
import { accepted, now, prepared } from '../ledger/conformance.ts';
import { freshFolder } from '../support/servers.ts';

const owner = deadOwner();
const { fingerprint } = prepared as { fingerprint: string };
const [removedId, nextId] = [newJobId(now), newJobId(now + 1)];
const sending: JobEvent = { type: 'sending', attempt: 1, owner };

async function ledgers(): Promise<[from: Ledger, to: Ledger]> {
  const folder = freshFolder();
  return [
    await openFileLedger(join(folder, 'one'), () => now),
    await openFileLedger(join(folder, 'two'), () => now),
  ];
}

const none = { read: () => Promise.resolve([]), write: () => Promise.resolve(false) };

/** Copies only the jobs, without budgets. */
async function copyJobs(from: Ledger, to: Ledger, keepKeys = false): Promise<number> {
  const places = [
    { name: 'one', ledger: from, budgets: none },
    { name: 'two', ledger: to, budgets: none },
  ] as const;
  return (await copyState(...places, ['mgw', 'state', 'copy'], keepKeys)).jobs;
}

/** Adds a job whose key previously belonged to a removed job. */
async function fill(ledger: Ledger): Promise<void> {
  const holder = (job: string): string => holderText({ job, fingerprint, owner });
  await ledger.claim('key.boat', holder(removedId));
  await ledger.create(removedId, [{ ...prepared, key: 'boat' }]);
  await ledger.remove(removedId);
  await ledger.claim(names.after(removedId), holder(nextId));
  await ledger.create(nextId, [{ ...prepared, key: 'boat' }, sending, accepted]);
  await ledger.claim(names.attempt(nextId, 1), JSON.stringify(owner));
  await ledger.confirm(names.attempt(nextId, 1));
  await ledger.claim(names.attempt(nextId, 2), JSON.stringify(owner));
}

function confirmations(ledger: Ledger): Promise<boolean[]> {
  return Promise.all([1, 2].map((attempt) => ledger.isConfirmed(names.attempt(nextId, attempt))));
}

it('every claim is copied with its confirmation, and a removed job remains removed', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  for (const copied of [1, 0]) {
    expect(await copyJobs(from, to)).toBe(copied);
    for (const name of [
      'key.boat',
      names.after(removedId),
      names.attempt(nextId, 1),
      names.attempt(nextId, 2),
    ])
      expect(await to.claimed(name), name).toBe(await from.claimed(name));
    expect(await confirmations(to)).toEqual([true, false]);
  }
  expect([await to.claimState(removedId), await to.claimState(nextId)]).toEqual(['removed', 'exists']);
  expect(await to.create(removedId, [prepared])).toBe(false);
});

it('a claim whose copy was interrupted before its confirmation is confirmed by the next copy', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  await expect(
    copyJobs(from, { ...to, confirm: () => Promise.reject(new Error('interrupted')) }),
  ).rejects.toThrow('interrupted');
  expect(await confirmations(to)).toEqual([false, false]);
  await copyJobs(from, to);
  expect(await confirmations(to)).toEqual([true, false]);
});

it.each([1, 2])(
  'attempt %i is a conflict, and is not confirmed, if another process has claimed it in the target',
  async (attempt) => {
    const [from, to] = await ledgers();
    await fill(from);
    await to.claim(names.attempt(nextId, attempt), 'of another process');
    await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict' });
    expect(await confirmations(to)).toEqual([false, false]);
  },
);

it('a job that is removed during the copy is not copied', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  const before = { ...from, ids: () => Promise.resolve([nextId, newJobId(now - 1)]) };
  expect(await copyJobs(before, to)).toBe(1);
  expect(await to.ids()).toEqual([nextId]);
});

it('a claim that belongs to another job in the target is a conflict', async () => {
  const [from, to] = await ledgers();
  await fill(from);
  await to.claim('key.boat', 'of another job');
  await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict' });
  expect(await to.claimed('key.boat')).toBe('of another job');
});

it.each([
  [8, ''],
  [9, ', and 1 more'],
])('the conflict of %i jobs lists up to eight of them', async (count, more) => {
  const [from, to] = await ledgers();
  const ids = Array.from({ length: count }, (_, index) => newJobId(now + index));
  for (const id of ids) {
    await from.create(id, [prepared]);
    await to.create(id, [{ ...prepared, key: 'boat' }]);
  }
  await expect(copyJobs(from, to)).rejects.toThrow(`two: ${ids.slice(0, 8).join(', ')}${more}. Nothing`);
});

/** Claims a name for a job. */
async function claimFor(ledger: Ledger, name: string, job: string): Promise<void> {
  await ledger.claim(name, holderText({ job, fingerprint, owner }));
}

/** Adds the job of a command. Claims the command's name first, as `create` does. */
async function command(ledger: Ledger, id: string, key?: string, after?: string): Promise<void> {
  await claimFor(ledger, after === undefined ? names.first({ key, fingerprint }) : names.after(after), id);
  await ledger.create(id, [{ ...prepared, key }, sending, accepted]);
}

/** Returns the jobs that a later command with the same name finds, in order. */
async function chain(ledger: Ledger, key?: string): Promise<string[]> {
  const found: string[] = [];
  await follow(ledger, { key, fingerprint }, ({ holder }) => {
    found.push(holder.job);
    return false;
  });
  return found;
}

it('a key that belongs to another job in the target is refused before anything is copied, unless the target may keep it', async () => {
  const [from, to] = await ledgers();
  const other = newJobId(now - 5);
  await command(from, newJobId(now - 9));
  await command(from, nextId, 'boat');
  await command(to, other, 'boat');
  await expect(copyJobs(from, to)).rejects.toMatchObject({
    code: 'conflict',
    exitCode: 2,
    message: `1 key would name two jobs: boat names ${nextId} in one, and ${other} in two. Nothing was copied. With --keep-keys, each key stays with the job that it has in two. The copied job can then be found only by its id.`,
    next: ['mgw', 'state', 'copy', '--keep-keys'],
  });
  expect(await to.ids()).toEqual([other]);
  expect(await copyJobs(from, to, true)).toBe(2);
  expect(await chain(to, 'boat')).toEqual([other, nextId]);
  expect(await copyJobs(from, to)).toBe(0);
});

it('the jobs of one command in two folders are chained in the target, even after a job that was never created', async () => {
  const [from, to] = await ledgers();
  const [own, unmade] = [newJobId(now - 5), newJobId(now - 4)];
  await command(from, nextId);
  await command(to, own);
  await claimFor(to, names.after(own), unmade);
  for (const copied of [1, 0]) expect(await copyJobs(from, to)).toBe(copied);
  expect(await chain(to)).toEqual([own, unmade, nextId]);
  expect(await to.claimState(unmade)).toBe('removed');
});

it('a job that was never created is not copied, but a later job of its command is', async () => {
  const [from, to] = await ledgers();
  const [own, unmade] = [newJobId(now - 5), newJobId(now - 4)];
  await command(from, own);
  await claimFor(from, names.after(own), unmade);
  await command(from, nextId, undefined, unmade);
  expect(await copyJobs(from, to)).toBe(2);
  expect(await chain(to)).toEqual([own, nextId]);
});

it('a lost job that may have been paid for remains lost', async () => {
  const [from, to] = await ledgers();
  const lost = newJobId(now - 5);
  await claimFor(from, names.first(prepared), lost);
  await from.claim(names.attempt(lost, 1), JSON.stringify(owner));
  await command(from, nextId, undefined, lost);
  await copyJobs(from, to);
  expect([await chain(to), await to.claimState(lost)]).toEqual([[lost, nextId], 'lost']);
});

it('a job whose record is damaged keeps the key that only its claim contains, a lost job remains lost, and a damaged claim remains damaged', async () => {
  const [from, to] = await ledgers();
  const lost = newJobId(now - 5);
  await from.create(nextId, [undefined, accepted]);
  await claimFor(from, 'key.boat.tmp', nextId);
  await from.claim('key.torn', 'damaged');
  await claimFor(from, 'key.sea', lost);
  await from.claim(names.attempt(lost, 1), JSON.stringify(owner));
  expect([await copyJobs(from, to), await copyJobs(from, to)]).toEqual([1, 0]);
  for (const name of ['key.boat.tmp', 'key.sea'])
    expect(await to.claimed(name)).toBe(await from.claimed(name));
  expect(await to.claimed('key.torn')).toBe('');
  expect([await to.claimState(nextId), await to.claimState(lost)]).toEqual(['exists', 'lost']);
});

it('a job can be copied even if the name of its command is damaged in the target', async () => {
  const [from, to] = await ledgers();
  await command(from, nextId);
  await to.claim(names.first(prepared), 'damaged');
  expect(await copyJobs(from, to)).toBe(1);
  expect(await chain(to)).toEqual([nextId]);
});

it('a key is a conflict only if its first existing job in the target differs; jobs that were never created are ignored', async () => {
  const [from, to] = await ledgers();
  const [first, other, unmade] = [newJobId(now - 5), newJobId(now - 4), newJobId(now - 3)];
  await command(from, first, 'boat');
  await command(from, nextId, 'boat', first);
  await claimFor(to, 'key.boat', unmade);
  expect(await copyJobs(from, to)).toBe(2);
  const [, third] = await ledgers();
  await command(third, other, 'boat');
  await expect(copyJobs(from, third)).rejects.toThrow(
    `1 key would name two jobs: boat names ${first} in one, and ${other} in two. Nothing`,
  );
});

it('a job that was removed from the target does not keep its key', async () => {
  const [from, to] = await ledgers();
  const other = newJobId(now + 5);
  await command(from, nextId, 'boat');
  await copyJobs(from, to);
  await to.remove(nextId);
  await command(to, other, 'boat', nextId);
  expect(await copyJobs(from, to)).toBe(0);
  expect(await to.ids()).toEqual([other]);
});

it('a job that is lost in the target is copied again with its key', async () => {
  const [from, to] = await ledgers();
  await command(from, nextId, 'boat');
  await claimFor(to, 'key.boat', nextId);
  await to.claim(names.attempt(nextId, 1), JSON.stringify(owner));
  expect(await to.claimState(nextId)).toBe('lost');
  expect(await copyJobs(from, to)).toBe(1);
});

it('a job in doubt whose record has lost the event of its attempt remains in doubt', async () => {
  const [from, to] = await ledgers();
  await from.create(nextId, [prepared]);
  await from.claim(names.attempt(nextId, 1), JSON.stringify(owner));
  await from.confirm(names.attempt(nextId, 1));
  expect([await copyJobs(from, to), await copyJobs(from, to)]).toEqual([1, 0]);
  expect(await to.read(nextId)).toMatchObject({ state: 'unknown' });
});

it('a lost job in the target does not look removed after the copy, because the job may have been paid for', async () => {
  const [from, to] = await ledgers();
  const lost = newJobId(now - 5);
  await claimFor(to, names.first(prepared), lost);
  await to.claim(names.attempt(lost, 1), JSON.stringify(owner));
  await from.create(nextId, [prepared, sending, accepted]);
  expect(await copyJobs(from, to)).toBe(1);
  expect([await to.claimState(lost), await to.claimState(nextId)]).toEqual(['lost', 'exists']);
  expect(await chain(to)).toEqual([lost, nextId]);
});

it('nothing is copied while a process works on a job', async () => {
  const [from, to] = await ledgers();
  const began: JobEvent = { type: 'began', run: 'r', owner: currentOwner(), command: 'submit', ask: 'file' };
  await from.create(removedId, [prepared]);
  await from.create(nextId, [prepared, began]);
  await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict' });
  expect(await to.ids()).toEqual([]);
  await from.append(nextId, { type: 'detached', run: 'r', exit_code: 0 });
  expect(await copyJobs(from, to)).toBe(2);
});

it('a job that was changed in both ledgers is a conflict, but not if only the target has newer events', async () => {
  const [from, to] = await ledgers();
  await from.create(nextId, [prepared]);
  await copyJobs(from, to);
  await to.append(nextId, accepted);
  expect(await copyJobs(from, to)).toBe(0);
  await from.append(nextId, { type: 'accepted', handle: 'another' });
  const show = ['mgw', 'jobs', 'show', nextId];
  await expect(copyJobs(from, to)).rejects.toMatchObject({ code: 'conflict', exitCode: 2, next: show });
});
