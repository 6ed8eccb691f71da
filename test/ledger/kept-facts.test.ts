import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import {
  countUnwritten,
  keepingFacts,
  UnwrittenEvents,
  type UnwrittenEvent,
} from '../../src/ledger/kept-facts.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/servers.ts';

const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };

it('an unwritten event is kept in memory, unless its job is known to be removed', async () => {
  for (const [isRemoved, count] of [
    [() => Promise.resolve(false), 1],
    [() => Promise.reject(new Error('gone')), 1],
    [() => Promise.resolve(true), 0],
  ] as const) {
    const results = [Promise.reject(new Error('full'))];
    const written: JobEvent[] = [];
    const { append, flush } = keepingFacts(async (_, event) => {
      await results.shift();
      written.push(event);
    }, isRemoved);
    await expect(append('job_1', accepted)).rejects.toThrow('full');
    await Promise.all([flush(), flush()]);
    expect(written).toEqual([accepted].slice(0, count));
  }
});

it('unwritten events are written once each, even by two concurrent calls', async () => {
  let isFull = true;
  const written: JobEvent[] = [];
  const write = (_: string, event: JobEvent): Promise<void> =>
    isFull ? Promise.reject(new Error('full')) : Promise.resolve(void written.push(event));
  const { append, flush } = keepingFacts(write, () => Promise.resolve(false));
  const events: JobEvent[] = [accepted, { type: 'finished', state: 'succeeded', native_status: '' }];
  for (const event of events) await expect(append('job_1', event)).rejects.toThrow('full');
  isFull = false;
  await Promise.all([flush(), flush()]);
  expect(written.map(({ type }) => type).sort()).toEqual(['accepted', 'finished']);
});

const factOf = (uid: string): UnwrittenEvent => ({ job: 'job_1', uid, line: '{}' });

it("pending events are written once each, in order, and another ledger's events are not changed", async () => {
  const state = freshFolder();
  const [facts, others] = [new UnwrittenEvents(state, 'one'), new UnwrittenEvents(state, 'other')];
  expect([countUnwritten(state), facts.files()]).toEqual([0, []]);
  for (const uid of ['1', '2', '3']) await facts.keep(factOf(uid));
  await others.keep(factOf('4'));
  writeFileSync(join(facts.folder, 'notes.txt'), '');
  expect([countUnwritten(state), facts.files().length]).toEqual([4, 3]);
  const written: string[] = [];
  const write = (fact: UnwrittenEvent): Promise<void> => {
    if (fact.uid === '2' && written.length === 1) return Promise.reject(new Error('gone'));
    return Promise.resolve(void written.push(fact.uid));
  };
  await expect(facts.flush(write)).rejects.toThrow('gone');
  expect([written, facts.files().length]).toEqual([['1'], 2]);
  written.push('again');
  await facts.flush(write);
  expect([written, facts.files(), countUnwritten(state)]).toEqual([['1', 'again', '2', '3'], [], 1]);
});

it('pending events that cannot be saved are kept in memory and written after the saved ones', async () => {
  const facts = new UnwrittenEvents(freshFolder(), 'one');
  await facts.keep(factOf('1'));
  renameSync(facts.folder, `${facts.folder}.aside`);
  writeFileSync(facts.folder, '');
  await expect(facts.keep(factOf('2'))).rejects.toMatchObject({ code: 'EEXIST' });
  rmSync(facts.folder);
  renameSync(`${facts.folder}.aside`, facts.folder);
  const written: string[] = [];
  const write = ({ uid }: UnwrittenEvent): Promise<void> => Promise.resolve(void written.push(uid));
  await facts.flush(write);
  await facts.flush(write);
  expect(written).toEqual(['1', '2']);
});

it('pending events with the same time are written in order', async () => {
  const facts = new UnwrittenEvents(freshFolder(), 'one');
  vi.spyOn(Date, 'now').mockReturnValue(1_795_000_000_000);
  onEnd(() => void vi.restoreAllMocks());
  const uids = Array.from({ length: 12 }, (_, n) => String(n));
  for (const uid of uids) await facts.keep(factOf(uid));
  const written: string[] = [];
  await facts.flush(({ uid }) => Promise.resolve(void written.push(uid)));
  expect(written).toEqual(uids);
});

it('pending events may be in a folder that is a link', async () => {
  const state = freshFolder();
  const facts = new UnwrittenEvents(join(state, 'ledger'), 'one');
  mkdirSync(dirname(facts.folder), { recursive: true });
  symlinkSync(state, facts.folder);
  await facts.keep(factOf('1'));
  expect(facts.files()).toHaveLength(1);
});

it('a torn or invalid file of pending events is not changed', async () => {
  const facts = new UnwrittenEvents(freshFolder(), 'one');
  mkdirSync(facts.folder, { recursive: true });
  const whole = factOf('1');
  const texts = ['', JSON.stringify(whole).slice(0, -1), 'null', '{}'];
  const lacking = Object.keys(whole).map((name) => JSON.stringify({ ...whole, [name]: undefined }));
  const all = [...texts, ...lacking];
  for (const [at, text] of all.entries()) writeFileSync(join(facts.folder, `${at}.json`), text);
  await facts.flush(() => Promise.reject(new Error('written')));
  expect(facts.files()).toHaveLength(all.length);
});
