import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readBudgetFile, writeBudgetFile } from '../../src/budget/budget-entries.ts';
import { FileBudget, openBudgetLog, type BudgetLog } from '../../src/budget/file-budget.ts';
import {
  decodeBudgetLine,
  encodeBudgetEvent,
  parseOwner,
  Reservations,
  type BudgetEntries,
  type BudgetEvent,
} from '../../src/budget/reservations.ts';
import { decimalOf, formatDecimal, parseDecimal } from '../../src/decimal.ts';
import { checkedLine } from '../../src/ledger/event-log.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk } from '../support/disk-operations.ts';
import { freshFolder } from '../support/fresh-folder.ts';

const at = '2026-11-22T10:00:00.000Z';
const owner = { pid: 7, start: '1', host: 'h', instance: 'i', lease: '3' };
const amount = parseDecimal('0.25');
const reserve: BudgetEvent = { type: 'reserve', id: 'a', amount, owner };

describe('a budget line', () => {
  it.each<[string, BudgetEvent]>([
    ['a limit', { type: 'limit', amount }],
    ['a daily limit', { type: 'limit', amount, per: 'day' }],
    ['a monthly limit', { type: 'limit', amount, per: 'month' }],
    ['the removal of a limit', { type: 'removed' }],
    ['a reservation', reserve],
    ['a reservation under a limit', { ...reserve, limit: { amount: decimalOf(3), per: 'month' } }],
    ['a reservation of a process without a lease', { ...reserve, owner: { pid: 7, start: '', host: '' } }],
    ['a spent amount', { type: 'keep', id: 'a' }],
    ['a final amount', { type: 'keep', id: 'a', amount }],
    ['a released amount', { type: 'release', id: 'a' }],
  ])('is read back as %s', (_, event) => {
    const line = encodeBudgetEvent(event, at);
    expect(decodeBudgetLine(line)).toEqual({ ...event, at });
    // A line that is truncated anywhere never looks complete.
    for (let cut = 0; cut < line.length; cut += 1) expect(decodeBudgetLine(line.slice(0, cut))).toBe('torn');
  });

  it.each<[string, object]>([
    ['has a later version', { v: 2, at, type: 'removed' }],
    ['has an unknown type', { v: 1, at, type: 'doubled' }],
    ['has no type', { v: 1, at }],
    ['is a list', [1]],
  ])('is damaged if it %s', (_, value) => {
    expect(decodeBudgetLine(checkedLine(value))).toBe('damaged');
  });

  it('ignores members of the wrong type', () => {
    expect(decodeBudgetLine(checkedLine({ v: 1, at: 7, type: 'keep', id: 8 }))).toEqual({
      ...{ at: '', type: 'keep', id: '' },
    });
    const limit = { v: 1, at, type: 'limit', amount: '1', per: 'year' };
    expect(decodeBudgetLine(checkedLine(limit))).toEqual({ at, type: 'limit', amount: decimalOf(1) });
  });
});

it.each([
  [owner, owner],
  [{}, { pid: 1, start: '', host: '' }],
  [undefined, { pid: 1, start: '', host: '' }],
  [
    { pid: '7', start: 1, host: 2, instance: 3, lease: 4 },
    { pid: 1, start: '', host: '' },
  ],
])('the owner %j is read as %j, so that an unidentified owner is never proven dead', (json, expected) => {
  expect(parseOwner(json)).toEqual(expected);
});

/**
 * Returns the state of a budget after the given events: `LIMIT SPENT RESERVED`, then the ids of the open reservations.
 */
function stateAfter(...events: BudgetEvent[]): string {
  const reservations = new Reservations();
  for (const event of events) reservations.apply({ ...event, at });
  const { limit, spent, reserved } = reservations.state(at);
  const amounts = [limit?.amount ?? decimalOf(0), spent, reserved].map(formatDecimal);
  return [...amounts, ...reservations.open().map(({ id }) => id)].join(' ');
}

describe('lines of a budget file', () => {
  const limit: BudgetEvent = { type: 'limit', amount: decimalOf(1) };
  const [keep, release] = (['keep', 'release'] as const).map((type): BudgetEvent => ({ type, id: 'a' })) as [
    BudgetEvent,
    BudgetEvent,
  ];

  const more: BudgetEvent = { type: 'keep', id: 'a', amount: parseDecimal('0.75') };
  const less: BudgetEvent = { type: 'keep', id: 'a', amount: parseDecimal('0.1') };
  const other: BudgetEvent = { ...reserve, id: 'b', amount: parseDecimal('0.26') };

  it.each<[string, BudgetEvent[], string]>([
    ['reserve an amount', [limit, reserve], '1 0 0.25 a'],
    ['spend an amount once', [limit, reserve, keep, keep], '1 0.25 0'],
    ['release an amount once', [limit, reserve, release, release], '1 0 0'],
    ['spend an amount that was released earlier', [limit, reserve, release, keep], '1 0.25 0'],
    ['replace a reserved amount', [limit, reserve, more], '1 0.75 0'],
    ['replace a spent amount once', [limit, reserve, keep, more, more], '1 0.75 0'],
    ['replace a spent amount with a lower one', [limit, reserve, keep, less], '1 0.1 0'],
    ['replace an amount that was released earlier', [limit, reserve, release, more], '1 0.75 0'],
    ['do not undo a final amount', [limit, reserve, more, keep, release], '1 0.75 0'],
    [
      'refuse a reservation for which a final amount leaves no room',
      [limit, reserve, more, other],
      '1 0.75 0',
    ],
    ['do not release an amount that was spent', [limit, reserve, keep, release], '1 0.25 0'],
    ['have no effect for an id that was never reserved', [limit, keep, release], '1 0 0'],
    [
      'have no effect after the budget is removed',
      [limit, reserve, keep, { type: 'removed' }, limit],
      '1 0 0',
    ],
    ['reserve nothing without a limit', [reserve], '0 0 0'],
    ['reserve nothing once the budget is removed', [limit, { type: 'removed' }, reserve], '0 0 0'],
    ['reserve up to the limit', [{ type: 'limit', amount }, reserve], '0.25 0 0.25 a'],
  ])('%s', (_, events, expected) => {
    expect(stateAfter(...events)).toBe(expected);
  });
});

it('reservations, limits and final amounts are synced; other settlements are not, because they can be repeated', async () => {
  const synced: string[] = [];
  let text = '';
  const log: BudgetLog = {
    append: (more, sync) => {
      text += more;
      const [, type = ''] = /"type":"(\w+)"/.exec(more) ?? [];
      synced.push(sync ? type : `${type} later`);
      return Promise.resolve();
    },
    // eslint-disable-next-line @typescript-eslint/require-await
    read: async function* () {
      const read = text;
      text = '';
      yield read;
    },
    close: () => Promise.resolve(),
  };
  const budget = new FileBudget({ log, now: () => 0, outcomeOf: () => Promise.resolve('accepted') });
  await budget.setLimit({ amount: decimalOf(2) });
  await budget.reserve({ id: 'a', amount, owner });
  await budget.keep('a');
  await budget.release('a');
  await budget.keep('a', amount);
  await budget.reserve({ id: 'b', amount, owner });
  await budget.settle();
  await budget.settle();
  await budget.reserve({ id: 'c', amount, owner });
  await budget.settle(() => Promise.resolve('none'));
  await budget.remove();
  expect(synced).toEqual([
    ...['limit', 'reserve', 'keep later', 'release later', 'keep', 'reserve', 'keep later', 'reserve'],
    ...['release', 'removed'],
  ]);
});

it("a budget file's lines are synced if required, and its name is synced when the file is opened", async () => {
  const path = join(freshFolder(), 'budget.jsonl');
  const syncs: string[] = [];
  onEnd(() => watchDisk(undefined));
  await watchDisk(({ name, path: synced = '' }, run) => {
    if (name === 'sync') syncs.push(synced);
    return run();
  });
  const log = await openBudgetLog(path);
  expect(syncs.splice(0)).toContain(dirname(path));
  await log.append('later\n', false);
  expect(syncs).toEqual([]);
  await log.append('now\n', true);
  expect(syncs).toEqual([path]);
  await log.close();
});

describe('entries of a budget', () => {
  const entry = (id: string, state: 'reserved' | 'kept'): BudgetEntries['entries'][number] => ({
    ...{ id, amount, at, owner, state },
  });

  it('are added to a file once without changing an existing limit', async () => {
    const path = join(freshFolder(), 'budget.jsonl');
    const entries = [entry('a', 'reserved'), entry('b', 'kept')];
    const limit = { amount: decimalOf(1), per: 'day' as const };
    expect(await writeBudgetFile(path, { limit, entries })).toBe(true);
    expect(await readBudgetFile(path)).toEqual({ limit, entries });
    expect(await writeBudgetFile(path, { limit: { amount: decimalOf(9) }, entries })).toBe(false);
    const later = [entry('a', 'kept'), entry('c', 'reserved')];
    expect(await writeBudgetFile(path, { entries: later })).toBe(true);
    const all = [entry('a', 'kept'), entry('b', 'kept'), entry('c', 'reserved')];
    expect(await readBudgetFile(path)).toEqual({ limit, entries: all });
  });

  it('replace an amount in a file with the final amount', async () => {
    const path = join(freshFolder(), 'budget.jsonl');
    await writeBudgetFile(path, { entries: [entry('a', 'reserved'), entry('b', 'kept')] });
    const final = ['a', 'b'].map((id) => ({ ...entry(id, 'kept'), amount: decimalOf(2) }));
    expect([
      await writeBudgetFile(path, { entries: final }),
      await writeBudgetFile(path, { entries: final }),
    ]).toEqual([true, false]);
    expect((await readBudgetFile(path)).entries).toEqual(final);
  });

  it('are durable once they are added', async () => {
    const path = join(freshFolder(), 'budget.jsonl');
    const operations: string[] = [];
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path: changed }, run) => {
      if (changed === path) operations.push(name);
      return run();
    });
    await writeBudgetFile(path, { entries: [entry('a', 'kept')] });
    expect(operations).toEqual(['open', 'write', 'sync']);
  });

  it('create a budget that grants nothing if there is no limit', async () => {
    const path = join(freshFolder(), 'budget.jsonl');
    await writeBudgetFile(path, { entries: [entry('a', 'kept')] });
    expect(await readBudgetFile(path)).toEqual({ limit: undefined, entries: [entry('a', 'kept')] });
  });

  it('are read without a torn line, but cause an error if a line is damaged', async () => {
    const path = join(freshFolder(), 'budget.jsonl');
    const log = await openBudgetLog(path);
    await log.append(`{"v":1,"at"\n${encodeBudgetEvent({ type: 'limit', amount }, at)}\n`, false);
    expect(await readBudgetFile(path)).toEqual({ limit: { amount, per: undefined }, entries: [] });
    await log.append('{"v":1}"}\n', false);
    const next = ['mv', path, `${path}.damaged`];
    await expect(readBudgetFile(path)).rejects.toMatchObject({ code: 'local_io', next });
    await log.close();
  });
});
