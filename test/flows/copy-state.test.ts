import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { Budget } from '../../src/budget/budget.ts';
import { readBudgetFile, readBudgetRows } from '../../src/budget/budget-entries.ts';
import type { BudgetKind } from '../../src/budget/budget.ts';
import { budgetPath, openBudget } from '../../src/budget/file-budget.ts';
import { PostgresBudget } from '../../src/budget/postgres-budget.ts';
import { resolveSettings } from '../../src/config/resolve.ts';
import { decimalOf, formatDecimal } from '../../src/decimal.ts';
import type { Job, JobEvent, RecordedEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { holderText, newJobId } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import type { PostgresLedger } from '../../src/ledger/postgres/postgres-ledger.ts';
import {
  addReservations,
  budgetsOfDatabase,
  budgetsOfFolder,
  type CopyCounts,
  type CopyPlace,
  copyState,
} from '../../src/flows/copy-state.ts';
import { latestRetry } from '../../src/jobs/ref.ts';
import { deadOwner } from '../jobs/harness.ts';
import { accepted, now, prepared } from '../ledger/conformance.ts';
import { describePostgres } from '../ledger/postgres/place.ts';
import { freshFolder } from '../support/servers.ts';

const owner = deadOwner();
const sending: JobEvent = { type: 'sending', attempt: 1, owner };

function inFolder(folder: string, ledger: Ledger): CopyPlace {
  return { name: folder, ledger, budgets: budgetsOfFolder(folder) };
}

function inDatabase(ledger: PostgresLedger): CopyPlace {
  return { name: 'postgres://db/mgw', ledger, budgets: budgetsOfDatabase(ledger.database) };
}

function copy(from: CopyPlace, to: CopyPlace): Promise<CopyCounts> {
  return copyState(from, to, ['mgw', 'state', 'copy', '--from', from.name]);
}

async function all(ledger: Ledger): Promise<unknown[]> {
  return Promise.all((await ledger.ids()).map(async (id) => [id, await ledger.events(id)]));
}

async function standing(budget: Budget): Promise<string[]> {
  const { limit, spent, reserved } = await budget.state();
  const amounts = [limit?.amount ?? decimalOf(0), spent, reserved].map(formatDecimal);
  return [...amounts, limit?.per ?? 'ever'];
}

describePostgres('a state folder that is copied into a database', (newPlace) => {
  it('keeps its jobs, keys, attempts and budgets, even if it is copied back, and can be copied again', async () => {
    const [one, two] = [join(freshFolder(), 'one'), join(freshFolder(), 'two')];
    const [from, back, shared] = [
      await openFileLedger(one, () => now),
      await openFileLedger(two, () => now),
      await (await newPlace()).open(),
    ];
    const [done, doubt, unsent] = [now, now + 1, now + 2].map((at) => newJobId(at)) as [
      string,
      string,
      string,
    ];
    await from.create(done, [{ ...prepared, key: 'boat' }, sending, accepted]);
    await from.create(doubt, [prepared, sending, undefined]);
    await from.create(unsent, [prepared]);
    for (const id of [doubt, unsent]) await from.claim(`send.${id}.1`, JSON.stringify(owner));
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const open = (folder: string, kind: BudgetKind = 'standing', name = 'clips'): Promise<Budget> =>
      openBudget(budgetPath(folder, kind, name), { now: () => now, outcomeOf });
    const budget = await open(one);
    await budget.setLimit({ amount: decimalOf(9), per: 'month' });
    for (const id of ['a', 'b', 'c']) await budget.reserve({ id, amount: decimalOf(2), owner });
    await budget.keep('a', decimalOf(3));
    await budget.release('b');
    const [other, ofCommand] = [await open(one, 'standing', 'songs'), await open(one, 'command')];
    await other.setLimit({ amount: decimalOf(5) });
    await other.reserve({ id: 'd', amount: decimalOf(1), owner });
    await ofCommand.reserve({ id: 'e', amount: decimalOf(3), owner }, { amount: decimalOf(4) });
    await Promise.all([other.close(), ofCommand.close()]);
    const budgets = [
      ['command', 'clips'],
      ['standing', 'clips'],
      ['standing', 'songs'],
    ] as const;
    const entriesIn = (folder: string): Promise<unknown[]> =>
      Promise.all(
        budgets.map(async ([kind, name]) => {
          const entries = await readBudgetFile(budgetPath(folder, kind, name));
          return { kind, name, budget: entries };
        }),
      );

    const { database } = shared;
    const [source, target] = [inFolder(one, from), inDatabase(shared)];
    for (const count of [3, 0]) expect(await copy(source, target)).toEqual({ jobs: count, budgets: count });
    const copied = new PostgresBudget({
      database,
      kind: 'standing',
      name: 'clips',
      outcomeOf,
      now: () => now,
    });
    for (const count of [3, 0])
      expect(await copy(target, inFolder(two, back))).toEqual({ jobs: count, budgets: count });
    for (const copies of [await readBudgetRows(database), await entriesIn(two)])
      expect(copies).toEqual(await entriesIn(one));

    for (const ledger of [shared, back]) {
      expect(await all(ledger)).toEqual(await all(from));
      expect(await ledger.claim('key.boat', 'other')).toBe(await from.claimed('key.boat'));
      for (const id of [doubt, unsent])
        expect(await ledger.claimed(`send.${id}.1`)).toBe(JSON.stringify(owner));
      expect((await ledger.read(doubt))?.state).toBe('unknown');
    }
    for (const each of [budget, copied, await open(two)]) {
      expect(await standing(each)).toEqual(['9', '3', '2', 'month']);
      await each.close();
    }
  });

  it('adds each reservation once to the budgets of an earlier folder, whose limits do not change', async () => {
    const shared = await (await newPlace()).open();
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const totals = async (): Promise<string[]> => {
      const options = { database: shared.database, kind: 'standing', name: 'clips', outcomeOf } as const;
      return standing(new PostgresBudget({ ...options, now: () => now }));
    };
    const folders = await Promise.all(
      [1, 2].map(async (amount) => {
        const folder = join(freshFolder(), 'state');
        const budget = await openBudget(budgetPath(folder, 'standing', 'clips'), {
          now: () => now,
          outcomeOf,
        });
        await budget.setLimit({ amount: decimalOf(4), per: amount === 1 ? 'day' : 'month' });
        for (const id of ['kept', 'open'])
          await budget.reserve({ id: `${id}${amount}`, amount: decimalOf(amount), owner });
        await budget.keep(`kept${amount}`);
        return { budget, place: inFolder(folder, await openFileLedger(folder, () => now)) };
      }),
    );
    const [one, two] = folders as [(typeof folders)[0], (typeof folders)[0]];
    const copied = async (place: CopyPlace): Promise<[number, string[]]> => [
      (await copy(place, inDatabase(shared))).budgets,
      await totals(),
    ];
    expect(await copied(one.place)).toEqual([1, ['4', '1', '1', 'day']]);
    expect(await copied(two.place)).toEqual([1, ['4', '3', '3', 'day']]);
    expect(await copied(two.place)).toEqual([0, ['4', '3', '3', 'day']]);
    await one.budget.keep('open1', decimalOf(3));
    expect(await copied(one.place)).toEqual([1, ['4', '6', '2', 'day']]);
    await Promise.all(folders.map(({ budget }) => budget.close()));
  });

  it('adds the reservations of imported jobs to its own budgets', async () => {
    const [from, { database }] = [
      await openFileLedger(join(freshFolder(), 'state'), () => now),
      await (await newPlace()).open(),
    ];
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const options = { database, kind: 'standing', name: 'clips', outcomeOf, now: () => now } as const;
    const budget = new PostgresBudget(options);
    await budget.setLimit({ amount: decimalOf(9) });
    const id = newJobId(now);
    const money = { cost: { at_most: '2' }, reservation: `${id}.1`, budgets: ['clips'] };
    await from.create(id, [prepared, { ...sending, ...money }, accepted]);
    const job = (await from.read(id)) ?? expect.unreachable();
    const env = { MGW_STATE_DIR: freshFolder() };
    const session = {
      settings: () => Promise.resolve(resolveSettings({ flags: {}, env, file: { profiles: {} } })),
      database: () => Promise.resolve(database),
      budget: () => Promise.resolve(budget),
    };
    const imported = async function* (): AsyncGenerator<{ job: Job; events: (RecordedEvent | undefined)[] }> {
      yield { job, events: await from.events(id) };
    };
    for (let times = 0; times < 2; times += 1) expect(await addReservations(session, imported())).toEqual([]);
    expect(await standing(budget)).toEqual(['9', '2', '0', 'ever']);
  });
});

it('a copied ledger contains a job that has lost its key, and finds the latest take of a row without its earlier takes', async () => {
  const [from, to] = await Promise.all(
    [1, 2].map(() => openFileLedger(join(freshFolder(), 'state'), () => now)),
  );
  if (from === undefined || to === undefined) expect.unreachable();
  const [keyless, third] = [newJobId(now + 1), newJobId(now + 2)];
  await from.create(keyless, [prepared, sending, accepted]);
  await from.claim('key.boat', holderText({ job: keyless, fingerprint: 'f', owner }));
  await from.create(newJobId(now), [{ ...prepared, key: 'boat' }]);
  await from.create(third, [{ ...prepared, key: 'film/boat/3' }, sending, accepted]);
  await from.claim('key.film/boat/3', holderText({ job: third, fingerprint: 'f', owner }));
  await copy(inFolder(freshFolder(), from), inFolder(freshFolder(), to));
  expect((await to.read(keyless))?.state).toBe('queued');
  expect((await latestRetry(to, 'film/boat')).job?.id).toBe(third);
});
