import pg from 'pg';
import { expect, it } from 'vitest';
import type { Limit } from '../../src/budget/budget.ts';
import { readBudgetRows, writeBudgetRows } from '../../src/budget/budget-entries.ts';
import type { BudgetKind } from '../../src/budget/budget.ts';
import { PostgresBudget } from '../../src/budget/postgres-budget.ts';
import type { BudgetEntries } from '../../src/budget/reservations.ts';
import { decimalOf, formatDecimal } from '../../src/decimal.ts';
import type { Database } from '../../src/ledger/postgres/database.ts';
import { describePostgres, type PostgresPlace } from '../ledger/postgres/place.ts';
import { onEnd } from '../support/clean-ups.ts';

const owner = { pid: 7, start: '1', host: 'h' };
const today = '2026-11-22T10:00:00.000Z';
const tomorrow = '2026-11-23T10:00:00.000Z';
const daily: Limit = { amount: decimalOf(9), per: 'day' };

function entry(id: string, state: 'reserved' | 'kept', amount: number): BudgetEntries['entries'][number] {
  return { id, state, amount: decimalOf(amount), at: today, owner };
}

function budgetAt(time: string, database: Database, kind: BudgetKind, name: string): PostgresBudget {
  const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
  return new PostgresBudget({ database, kind, name, outcomeOf, now: () => Date.parse(time) });
}

/** Returns the amounts spent and reserved on a day. */
async function sums(budget: PostgresBudget): Promise<string[]> {
  const { spent, reserved } = await budget.state();
  return [spent, reserved].map(formatDecimal);
}

/** Resolves once `count` statements are waiting for a lock. */
function waitingIn({ server, database }: PostgresPlace, count: number): Promise<void> {
  const text =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
  return expect.poll(() => server.query(text, database)).toBe(String(count));
}

describePostgres('entries of a budget in a database', (newPlace) => {
  it('are added once, become spent, are raised to a final amount, and create the budget even if there are none', async () => {
    const { database } = await (await newPlace()).open();
    expect(await writeBudgetRows(database, 'command', 'clips', { entries: [] })).toBe(false);
    expect(await readBudgetRows(database)).toEqual([
      { kind: 'command', name: 'clips', budget: { limit: undefined, entries: [] } },
    ]);
    const write = (...entries: BudgetEntries['entries']): Promise<boolean> =>
      writeBudgetRows(database, 'standing', 'clips', { limit: daily, entries });
    const budget = budgetAt(today, database, 'standing', 'clips');
    const added: [BudgetEntries['entries'], string[]][] = [
      [
        [entry('a', 'reserved', 2), entry('b', 'kept', 1)],
        ['1', '2'],
      ],
      [[entry('a', 'kept', 2)], ['3', '0']],
      [[entry('b', 'kept', 4)], ['6', '0']],
    ];
    for (const [entries, expected] of added) {
      expect([await write(...entries), await write(...entries)]).toEqual([true, false]);
      expect(await sums(budget)).toEqual(expected);
    }
    expect((await budget.state()).limit).toEqual(daily);
    // An entry counts today at the latest, because a later day would replace the sums of today.
    const ahead = { ...entry('a', 'kept', 2), at: '2999-01-01T00:00:00.000Z' };
    await writeBudgetRows(database, 'standing', 'later', { limit: daily, entries: [ahead] });
    const isNow = "day <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD') AND day_kept = 2";
    const rows = await database.query(`SELECT ${isNow} AS now FROM mgw.budgets WHERE name = 'later'`);
    expect(rows).toEqual([{ now: true }]);
  });

  it('count for the current day even if a budget with the same kind or name has already begun the next day', async () => {
    const { database } = await (await newPlace()).open();
    const others = (
      [
        ['standing', 'songs'],
        ['batch', 'clips'],
      ] as const
    ).map(([kind, name]) => budgetAt(tomorrow, database, kind, name));
    for (const other of others) await other.reserve(entry('a', 'reserved', 1), daily);
    await writeBudgetRows(database, 'standing', 'clips', { limit: daily, entries: [entry('a', 'kept', 2)] });
    expect(await sums(budgetAt(today, database, 'standing', 'clips'))).toEqual(['2', '0']);
    expect(await sums(budgetAt(tomorrow, database, 'standing', 'clips'))).toEqual(['0', '0']);
    for (const other of others) expect(await sums(other)).toEqual(['0', '1']);
  });

  it('do not undo a reservation of a later day that another process makes at the same time', async () => {
    const place = await newPlace();
    const [one, other] = [await place.open(), await place.open()];
    const later = budgetAt(tomorrow, one.database, 'standing', 'clips');
    await later.setLimit(daily);
    const holder = new pg.Client({ connectionString: place.server.url(place.database) });
    await holder.connect();
    onEnd(() => holder.end());
    await holder.query('BEGIN; SELECT FROM mgw.budgets FOR UPDATE');
    const reserved = later.reserve(entry('b', 'reserved', 3));
    await waitingIn(place, 1);
    const entries = [entry('a', 'kept', 2)];
    const written = writeBudgetRows(other.database, 'standing', 'clips', { entries });
    await waitingIn(place, 2);
    await holder.query('COMMIT');
    expect([await reserved, await written]).toEqual([{ fits: true }, true]);
    expect(await sums(later)).toEqual(['0', '3']);
  });
});
