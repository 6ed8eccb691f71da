import fc from 'fast-check';
import pg from 'pg';
import { expect, it, vi } from 'vitest';
import type { Charge, ChargeOutcome, Limit, OutcomeOf, Per, BudgetState } from '../../src/budget/budget.ts';
import { openReservations, PostgresBudget } from '../../src/budget/postgres-budget.ts';
import { Reservations } from '../../src/budget/reservations.ts';
import { type Decimal, decimalOf, formatDecimal } from '../../src/decimal.ts';
import type { PostgresLedger } from '../../src/ledger/postgres/postgres-ledger.ts';
import { onEnd } from '../support/clean-ups.ts';
import { CuttingProxy } from '../support/cutting-proxy.ts';
import { describePostgres, type PostgresPlace } from '../ledger/postgres/place.ts';

const owner = { pid: 7, start: '1', host: 'h' };
const dayMs = 86_400_000;

function chargeOf(id: string, amount: number): Charge {
  return { id, amount: decimalOf(amount), owner };
}

function shown({ limit, spent, reserved }: BudgetState): object {
  const amount = limit && formatDecimal(limit.amount);
  return { amount, per: limit?.per, spent: formatDecimal(spent), reserved: formatDecimal(reserved) };
}

const per = fc.constantFrom<(Per | undefined)[]>(undefined, 'day', 'month');
const limit = fc.record({ amount: fc.integer({ min: 1, max: 12 }), per });
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('reserve'),
      amount: fc.integer({ min: 1, max: 5 }),
      own: fc.option(limit),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('keep', 'release'),
      which: fc.nat(8),
      final: fc.option(fc.nat(9), { nil: undefined }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('limit'), limit }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('remove') }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait'), days: fc.integer({ min: 1, max: 20 }) }) },
);
type Step = {
  do: string;
  amount?: number;
  own?: Given | null;
  which?: number;
  final?: number | undefined;
  limit?: Given;
  days?: number;
};
type Given = { amount: number; per: Per | undefined };

function limitOf(given: Given): Limit {
  return { amount: decimalOf(given.amount), ...(given.per && { per: given.per }) };
}

/** Resolves once `count` statements are waiting for a lock. */
function waitingIn(place: PostgresPlace, count: number): Promise<void> {
  const text =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
  return expect.poll(() => place.server.query(text, place.database)).toBe(String(count));
}

/** Returns a function that opens a budget in the ledger's database. Each budget has its own name. */
function budgetsIn({ database }: PostgresLedger): (options?: Options) => PostgresBudget {
  let count = 0;
  return ({ outcomeOf = (): Promise<'open'> => Promise.resolve('open'), now } = {}) =>
    new PostgresBudget({ database, kind: 'standing', name: `b${(count += 1)}`, outcomeOf, now });
}

interface Options {
  outcomeOf?: OutcomeOf;
  now?: () => number;
}

/** Connects to the database without mgw. */
async function clientOf({ server, database }: PostgresPlace): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.url(database) });
  await client.connect();
  onEnd(() => client.end());
  return client;
}

describePostgres('a PostgreSQL budget', (newPlace) => {
  it('lists its open reservations and settles them with the given outcomes', async () => {
    const ledger = await (await newPlace()).open();
    const budget = budgetsIn(ledger)();
    for (const id of ['kept', 'released']) await budget.reserve(chargeOf(id, 1), { amount: decimalOf(3) });
    const listed = await openReservations(ledger.database);
    expect(listed.sort((one, other) => (one.id < other.id ? -1 : 1))).toEqual(
      ['kept', 'released'].map((id) => ({ kind: 'standing', name: 'b1', id })),
    );
    await budget.settle(({ id }) => Promise.resolve(id === 'kept' ? 'accepted' : 'none'));
    expect(await openReservations(ledger.database)).toEqual([]);
    expect(shown(await budget.state())).toMatchObject({ spent: '1', reserved: '0' });
  });

  it('counts a repeated reservation once, and refuses to reopen a released one whose amount no longer fits', async () => {
    const budgetOf = budgetsIn(await (await newPlace()).open());
    const repeated = budgetOf();
    const limit = { amount: decimalOf(3) };
    for (let tries = 0; tries < 2; tries += 1)
      expect(await repeated.reserve(chargeOf('a', 2), limit)).toEqual({ fits: true });
    expect(await repeated.reserve(chargeOf('b', 1), limit)).toEqual({ fits: true });
    for (const again of ['a', 'b'])
      expect(await repeated.reserve(chargeOf(again, 1), { amount: decimalOf(9) })).toEqual({ fits: true });
    expect(shown(await repeated.state())).toMatchObject({ spent: '0', reserved: '3' });
    const released = budgetOf();
    const max = { amount: decimalOf(10) };
    expect(await released.reserve(chargeOf('r', 6), max)).toEqual({ fits: true });
    await released.release('r');
    expect(await released.reserve(chargeOf('s', 6), max)).toEqual({ fits: true });
    // This is the state after the response to the first reservation is lost and its process is declared dead.
    expect(await released.reserve(chargeOf('r', 6), max)).toMatchObject({ fits: false });
    expect(shown(await released.state())).toMatchObject({ reserved: '6' });
  });

  it('makes the same decisions as the file budget for any sequence of operations', async () => {
    const budgetOf = budgetsIn(await (await newPlace()).open());
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps: Step[]) => {
        let time = Date.parse('2026-11-22T10:00:00Z');
        const model = new Reservations();
        const budget = budgetOf({ now: () => time });
        for (const [index, one] of steps.entries()) {
          time += 1000;
          const at = new Date(time).toISOString();
          const id = `r${one.which ?? 0}`;
          if (one.do === 'wait') time += (one.days ?? 0) * dayMs;
          if (one.do === 'limit' && one.limit) {
            model.apply({ type: 'limit', ...limitOf(one.limit), at });
            await budget.setLimit(limitOf(one.limit));
          }
          if (one.do === 'remove') {
            model.apply({ type: 'removed', at });
            await budget.remove();
          }
          if (one.do === 'keep') {
            const final = one.final === undefined ? undefined : decimalOf(one.final);
            model.apply({ type: 'keep', id, amount: final, at });
            await budget.keep(id, final);
          }
          if (one.do === 'release') {
            model.apply({ type: 'release', id, at });
            await budget.release(id);
          }
          if (one.do === 'reserve') {
            const charge = chargeOf(`r${index}`, one.amount ?? 0);
            const own = one.own ? limitOf(one.own) : undefined;
            const expected = model.apply({ type: 'reserve', ...charge, limit: own, at });
            const decision = await budget.reserve(charge, own);
            expect(decision.fits).toBe(expected?.fits);
            if (!decision.fits && expected?.fits === false)
              expect(shown(decision.state)).toEqual(shown(expected.state));
          }
          expect(shown(await budget.state())).toEqual(shown(model.state(new Date(time).toISOString())));
        }
      }),
      { numRuns: 20 },
    );
  });

  it('is unaffected by changes to another budget with the same name, kind or reservation', async () => {
    const { database } = await (await newPlace()).open();
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const [own, sameName, sameKind] = (
      [
        ['standing', 'clips'],
        ['batch', 'clips'],
        ['standing', 'films'],
      ] as const
    ).map(([kind, name]) => new PostgresBudget({ database, kind, name, outcomeOf })) as [
      PostgresBudget,
      PostgresBudget,
      PostgresBudget,
    ];
    const max = { amount: decimalOf(9) };
    for (const budget of [own, sameName, sameKind]) {
      await budget.setLimit(max);
      for (const id of ['a', 'b', 'c']) await budget.reserve(chargeOf(id, 2), max);
    }
    await own.keep('a');
    const before = shown(await own.state());
    const seen: string[] = [];
    await sameKind.reserve(chargeOf('d', 2), max);
    await own.settle(({ id }) => Promise.resolve(seen.push(id) > 9 ? 'none' : 'open'));
    expect(seen).toEqual(['b', 'c']);
    for (const other of [sameName, sameKind]) {
      await other.setLimit({ amount: decimalOf(20), per: 'day' });
      await other.release('a');
      await other.keep('b');
      await other.remove();
    }
    expect(shown(await own.state())).toEqual(before);
    await own.settle(({ id }) => Promise.resolve(id === 'b' ? 'accepted' : 'none'));
    expect(shown(await own.state())).toMatchObject({ spent: '4', reserved: '0' });
    expect(await own.reserve(chargeOf('d', 6), max)).toMatchObject({ fits: false });
  });

  it('can be used to the last unit, but no further, by any number of concurrent processes', async () => {
    const place = await newPlace();
    const sides = await Promise.all([1, 2, 3].map(() => place.open()));
    const all = sides.map((ledger) => budgetsIn(ledger)());
    const max = { amount: decimalOf(20) };
    const tries = Array.from({ length: 30 }, (_, index) =>
      (all[index % 3] ?? (all[0] as PostgresBudget)).reserve(chargeOf(`r${index}`, 1), max),
    );
    const fits = (await Promise.all(tries)).filter((decision) => decision.fits);
    expect(fits).toHaveLength(20);
    expect(shown((await all[0]?.state()) as BudgetState)).toMatchObject({ reserved: '20', spent: '0' });
  });

  it('reserves an amount once, and replaces it once, if the connection to the database loses a message or an answer', async () => {
    const place = await newPlace();
    const proxy = await CuttingProxy.open(place.server.port);
    const budgetOf = budgetsIn(await place.open({ port: proxy.port }));
    const max = { amount: decimalOf(10) };
    for (const lose of ['message', 'answer'] as const) {
      const budget = budgetOf();
      const reservation = proxy.cutAt({ at: /INSERT INTO mgw.reservations/, lose });
      expect(await budget.reserve(chargeOf('r', 6), max), lose).toEqual({ fits: true });
      await reservation;
      expect(shown(await budget.state())).toMatchObject({ reserved: '6' });
      expect(await budget.reserve(chargeOf('s', 6), max)).toMatchObject({ fits: false });
      await budget.keep('r');
      const replacement = proxy.cutAt({ at: /UPDATE mgw.reservations/, lose });
      await budget.keep('r', decimalOf(9));
      await replacement;
      expect(shown(await budget.state()), lose).toMatchObject({ spent: '9', reserved: '0' });
      expect(await budget.reserve(chargeOf('s', 2), max)).toMatchObject({ fits: false });
    }
  });

  it("stores exact amounts, and resets daily according to the database's clock", async () => {
    const budgetOf = budgetsIn(await (await newPlace()).open());
    const [exact, daily] = [budgetOf(), budgetOf()];
    const amount = { digits: 10n ** 40n + 1n, scale: 30 };
    expect(await exact.reserve({ ...chargeOf('r', 0), amount }, { amount })).toEqual({ fits: true });
    await exact.keep('r');
    expect(formatDecimal((await exact.state()).spent)).toBe(formatDecimal(amount));
    await daily.setLimit({ amount: decimalOf(3), per: 'day' });
    expect(await daily.reserve(chargeOf('a', 2))).toEqual({ fits: true });
    expect(await daily.reserve(chargeOf('b', 2))).toMatchObject({ fits: false });
    expect(shown(await daily.state())).toMatchObject({ reserved: '2' });
  });

  it('uses the outcomes and final amounts that are known from the ledger before it refuses an amount', async () => {
    const budgetOf = budgetsIn(await (await newPlace()).open());
    const outcomes: Record<string, ChargeOutcome | Decimal> = {
      ...{ none: 'none', accepted: 'accepted', five: decimalOf(5), one: decimalOf(1) },
    };
    const outcomeOf: OutcomeOf = ({ id }) => Promise.resolve(outcomes[id] ?? 'open');
    const cases: [string[], number, number, number, object][] = [
      [['none', 'accepted', 'open'], 1, 3, 1, { spent: '1', reserved: '2' }],
      [['five', 'one'], 4, 8, 2, { spent: '6', reserved: '2' }],
      [['none'], 1, 1, 1, { spent: '0', reserved: '1' }],
    ];
    for (const [ids, each, limit, next, standing] of cases) {
      const [budget, max] = [budgetOf({ outcomeOf }), { amount: decimalOf(limit) }];
      for (const id of ids) expect(await budget.reserve(chargeOf(id, each), max)).toEqual({ fits: true });
      expect(await budget.reserve(chargeOf('next', next), max)).toEqual({ fits: true });
      expect(await budget.reserve(chargeOf('too much', 1), max)).toMatchObject({ fits: false });
      expect(shown(await budget.state())).toMatchObject(standing);
    }
  });

  it('needs one statement to reserve an amount that fits, and looks up no outcomes', async () => {
    const { database } = await (await newPlace()).open();
    const budget = budgetsIn({ database } as PostgresLedger)({ outcomeOf: () => expect.fail('asked') });
    const max = { amount: decimalOf(3) };
    await budget.reserve(chargeOf('a', 1), max);
    const query = vi.spyOn(database, 'query');
    await budget.reserve(chargeOf('b', 1), max);
    expect(query).toHaveBeenCalledTimes(1);
  });

  // A process that did not wait could release the amount before the sender sends its request.
  it('makes a process that declares the sender dead wait until the reservation is recorded', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const { owner } = await ledger.lease();
    const budget = budgetsIn(ledger)();
    const max = { amount: decimalOf(3) };
    await budget.setLimit(max);
    const [holder, other] = [await clientOf(place), await clientOf(place)];
    await holder.query('BEGIN; SELECT FROM mgw.budgets FOR UPDATE');
    const reserved = budget.reserve({ ...chargeOf('r', 1), owner }, max);
    await waitingIn(place, 1);
    const declared = other.query('DELETE FROM mgw.leases');
    await waitingIn(place, 2);
    await holder.query('COMMIT');
    expect(await reserved).toEqual({ fits: true });
    await declared;
    expect(shown(await budget.state())).toMatchObject({ reserved: '1' });
  });

  it('reserves nothing for a process whose lease has expired, belongs to another process or was ended', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const { owner } = await ledger.lease();
    const budget = budgetsIn(ledger)();
    const max = { amount: decimalOf(3) };
    const charge = { ...chargeOf('r', 1), owner };
    const change = (text: string): Promise<string> => place.server.query(text, place.database);
    expect(await budget.reserve({ ...charge, amount: decimalOf(4) }, max)).toMatchObject({ fits: false });
    await change('UPDATE mgw.leases SET until = clock_timestamp()');
    await expect(budget.reserve(charge, max)).rejects.toMatchObject({ exitCode: 6 });
    await change("UPDATE mgw.leases SET until = 'infinity'");
    const other = { ...charge, owner: { ...owner, instance: 'another' } };
    await expect(budget.reserve(other, max)).rejects.toMatchObject({ exitCode: 6 });
    expect(shown(await budget.state())).toMatchObject({ reserved: '0' });
    expect(await budget.reserve(charge, max)).toEqual({ fits: true });
    await change('DELETE FROM mgw.leases');
    await expect(budget.reserve({ ...charge, id: 'r2' }, max)).rejects.toMatchObject({ exitCode: 6 });
    expect(shown(await budget.state())).toMatchObject({ reserved: '1' });
  });

  it('counts a reservation once if it is kept, corrected or released twice at the same time', async () => {
    const place = await newPlace();
    const budgetOf = budgetsIn(await place.open());
    const holder = await clientOf(place);
    const cases: [ways: ('keep' | 'release' | number)[], spent: string][] = [
      [['keep', 5], '5'],
      [[5, 'keep'], '5'],
      [[5, 7], '7'],
      [['release', 5], '5'],
      [[5, 'release'], '5'],
      [['keep', 'keep'], '1'],
      [['release', 'release'], '0'],
      [['release', 'keep'], '1'],
      [['keep', 'release'], '1'],
    ];
    for (const [methods, spent] of cases) {
      const budget = budgetOf();
      await budget.reserve(chargeOf('r', 1), { amount: decimalOf(3) });
      // Both operations start before either can finish.
      await holder.query('BEGIN; SELECT FROM mgw.budgets FOR UPDATE');
      const settled: Promise<void>[] = [];
      for (const method of methods) {
        settled.push(typeof method === 'number' ? budget.keep('r', decimalOf(method)) : budget[method]('r'));
        await waitingIn(place, settled.length);
      }
      await holder.query('COMMIT');
      await Promise.all(settled);
      expect(shown(await budget.state()), methods.join()).toMatchObject({ spent, reserved: '0' });
    }
  });
});
