import fc from 'fast-check';
import pg from 'pg';
import { expect, it } from 'vitest';
import type { Charge, ChargeOutcome, Limit, OutcomeOf, Per, BudgetState } from '../../src/budget/budget.ts';
import { openReservations, PostgresBudget } from '../../src/budget/postgres-budget.ts';
import { Reservations } from '../../src/budget/reservations.ts';
import { type Decimal, decimalOf, formatDecimal } from '../../src/decimal.ts';
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

describePostgres('a PostgreSQL budget', (newPlace) => {
  /** Returns a budget on a new database, and the proxy through which it connects. */
  async function budgetBehindProxy(): Promise<{ proxy: CuttingProxy; budget: PostgresBudget }> {
    const place = await newPlace();
    const proxy = await CuttingProxy.open(place.server.port);
    const { database } = await place.open({ port: proxy.port });
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    return { proxy, budget: new PostgresBudget({ database, kind: 'batch', name: 'b', outcomeOf }) };
  }

  let count = 0;
  const budgetIn = async (
    outcomeOf: OutcomeOf = () => Promise.resolve('open'),
    now?: () => number,
  ): Promise<PostgresBudget> => {
    const { database } = await (await newPlace()).open();
    return new PostgresBudget({ database, kind: 'standing', name: `b${(count += 1)}`, outcomeOf, now });
  };

  it('lists its open reservations and settles them with the given outcomes', async () => {
    const { database } = await (await newPlace()).open();
    const [kind, name] = ['standing', `b${(count += 1)}`] as const;
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const budget = new PostgresBudget({ database, kind, name, outcomeOf });
    const owner = { pid: 7, start: '1', host: 'afar' };
    for (const id of ['kept', 'released'])
      await budget.reserve({ id, amount: decimalOf(1), owner }, { amount: decimalOf(3) });
    const open = ['kept', 'released'].map((id) => ({ kind, name, id }));
    const listed = await openReservations(database);
    expect(listed.sort((one, other) => (one.id < other.id ? -1 : 1))).toEqual(open);
    await budget.settle(({ id }) => Promise.resolve(id === 'kept' ? 'accepted' : 'none'));
    expect(await openReservations(database)).toEqual([]);
    expect(await budget.state()).toMatchObject({ spent: decimalOf(1), reserved: decimalOf(0) });
  });

  it('counts a reservation once if it is repeated because the first response was lost', async () => {
    const budget = await budgetIn();
    const limit = { amount: decimalOf(3) };
    for (let tries = 0; tries < 2; tries += 1)
      expect(await budget.reserve(chargeOf('a', 2), limit)).toEqual({ fits: true });
    expect(await budget.reserve(chargeOf('b', 1), limit)).toEqual({ fits: true });
    for (const again of ['a', 'b'])
      expect(await budget.reserve(chargeOf(again, 1), { amount: decimalOf(9) })).toEqual({ fits: true });
    expect(shown(await budget.state())).toMatchObject({ spent: '0', reserved: '3' });
  });

  it('makes the same decisions as the file budget for any sequence of operations', async () => {
    const { database } = await (await newPlace()).open();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps: Step[]) => {
        let time = Date.parse('2026-11-22T10:00:00Z');
        const model = new Reservations();
        const name = `m${(count += 1)}`;
        const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
        const budget = new PostgresBudget({ database, kind: 'standing', name, outcomeOf, now: () => time });
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
      { numRuns: 60 },
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
    const most = { amount: decimalOf(9) };
    for (const budget of [own, sameName, sameKind]) {
      await budget.setLimit(most);
      for (const id of ['a', 'b', 'c']) await budget.reserve(chargeOf(id, 2), most);
    }
    await own.keep('a');
    const before = shown(await own.state());
    const seen: string[] = [];
    await sameKind.reserve(chargeOf('d', 2), most);
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
    expect(await own.reserve(chargeOf('d', 6), most)).toMatchObject({ fits: false });
  });

  it('can be used to the last unit, but no further, by any number of concurrent processes', async () => {
    const place = await newPlace();
    const sides = await Promise.all([1, 2, 3, 4, 5].map(() => place.open()));
    const all = sides.map(
      ({ database }) =>
        new PostgresBudget({ database, kind: 'batch', name: 'b', outcomeOf: () => Promise.resolve('open') }),
    );
    const most = { amount: decimalOf(100) };
    const tries = Array.from({ length: 150 }, (_, index) =>
      (all[index % 5] ?? (all[0] as PostgresBudget)).reserve(chargeOf(`r${index}`, 1), most),
    );
    const fits = (await Promise.all(tries)).filter((decision) => decision.fits);
    expect(fits).toHaveLength(100);
    expect(shown((await all[0]?.state()) as BudgetState)).toMatchObject({ reserved: '100', spent: '0' });
  });

  it.each(['message', 'answer'] as const)(
    'reserves an amount once, up to the limit, if the connection to the database loses the %s',
    async (lose) => {
      const { proxy, budget } = await budgetBehindProxy();
      const cut = proxy.cutAt({ at: /INSERT INTO mgw.reservations/, lose });
      expect(await budget.reserve(chargeOf('r', 6), { amount: decimalOf(10) })).toEqual({ fits: true });
      await cut;
      expect(shown(await budget.state())).toMatchObject({ reserved: '6' });
      expect(await budget.reserve(chargeOf('s', 6), { amount: decimalOf(10) })).toMatchObject({
        fits: false,
      });
    },
  );

  it.each(['message', 'answer'] as const)(
    'replaces an amount once if the connection to the database loses the %s',
    async (lose) => {
      const { proxy, budget } = await budgetBehindProxy();
      const most = { amount: decimalOf(10) };
      await budget.reserve(chargeOf('r', 2), most);
      await budget.keep('r');
      const cut = proxy.cutAt({ at: /UPDATE mgw.reservations/, lose });
      await budget.keep('r', decimalOf(9));
      await cut;
      expect(shown(await budget.state())).toMatchObject({ spent: '9', reserved: '0' });
      expect(await budget.reserve(chargeOf('s', 2), most)).toMatchObject({ fits: false });
    },
  );

  it('stores exact amounts', async () => {
    const budget = await budgetIn();
    const amount = { digits: 10n ** 40n + 1n, scale: 30 };
    expect(await budget.reserve({ ...chargeOf('r', 0), amount }, { amount })).toEqual({ fits: true });
    await budget.keep('r');
    expect(formatDecimal((await budget.state()).spent)).toBe(formatDecimal(amount));
  });

  it('releases the reservations of dead processes, but not the amounts that they had spent', async () => {
    const outcomes: Record<string, ChargeOutcome> = { a: 'none', b: 'accepted', c: 'open' };
    const budget = await budgetIn(({ id }) => Promise.resolve(outcomes[id] ?? 'open'));
    const most = { amount: decimalOf(3) };
    for (const id of ['a', 'b', 'c'])
      expect(await budget.reserve(chargeOf(id, 1), most)).toEqual({ fits: true });
    expect(await budget.reserve(chargeOf('d', 1), most)).toEqual({ fits: true });
    expect(await budget.reserve(chargeOf('e', 1), most)).toMatchObject({ fits: false });
    expect(shown(await budget.state())).toMatchObject({ spent: '1', reserved: '2' });
  });

  it('is reported as full to a process with a valid lease', async () => {
    const ledger = await (await newPlace()).open();
    const { owner } = await ledger.lease();
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const { database } = ledger;
    const budget = new PostgresBudget({ database, kind: 'batch', name: 'full', outcomeOf });
    const decision = await budget.reserve({ ...chargeOf('r', 2), owner }, { amount: decimalOf(1) });
    expect(decision).toMatchObject({ fits: false });
  });

  it("resets daily according to the database's clock", async () => {
    const budget = await budgetIn();
    await budget.setLimit({ amount: decimalOf(3), per: 'day' });
    expect(await budget.reserve(chargeOf('a', 2))).toEqual({ fits: true });
    expect(await budget.reserve(chargeOf('b', 2))).toMatchObject({ fits: false });
    expect(shown(await budget.state())).toMatchObject({ reserved: '2' });
  });

  it('needs one statement to reserve an amount that fits, and looks up no outcomes', async () => {
    const { database } = await (await newPlace()).open();
    let statements = 0;
    const counting = {
      table: (name: string) => database.table(name),
      query: (...args: Parameters<typeof database.query>) => {
        statements += 1;
        return database.query(...args);
      },
    } as unknown as typeof database;
    const outcomeOf = (): never => expect.fail('asked');
    const budget = new PostgresBudget({ database: counting, kind: 'batch', name: 'quick', outcomeOf });
    const most = { amount: decimalOf(3) };
    await budget.reserve(chargeOf('a', 1), most);
    statements = 0;
    await budget.reserve(chargeOf('b', 1), most);
    expect(statements).toBe(1);
  });

  it('uses the final amounts that are known from the ledger', async () => {
    const amounts: Record<string, Decimal> = { a: decimalOf(5), b: decimalOf(1) };
    const budget = await budgetIn(({ id }) => Promise.resolve(amounts[id] ?? 'open'));
    const most = { amount: decimalOf(8) };
    for (const id of ['a', 'b']) await budget.reserve(chargeOf(id, 4), most);
    expect(await budget.reserve(chargeOf('c', 2), most)).toEqual({ fits: true });
    expect(shown(await budget.state())).toMatchObject({ spent: '6', reserved: '2' });
    expect(await budget.reserve(chargeOf('d', 1), most)).toMatchObject({ fits: false });
  });

  it("releases a dead process's amount even if nothing else can be settled", async () => {
    const budget = await budgetIn(({ id }) => Promise.resolve(id === 'a' ? 'none' : 'open'));
    const most = { amount: decimalOf(1) };
    expect(await budget.reserve(chargeOf('a', 1), most)).toEqual({ fits: true });
    expect(await budget.reserve(chargeOf('b', 1), most)).toEqual({ fits: true });
  });

  // A process that did not wait could release the amount before the sender sends its request.
  it('makes a process that declares the sender dead wait until the reservation is recorded', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const { owner } = await ledger.lease();
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const { database } = ledger;
    const budget = new PostgresBudget({ database, kind: 'batch', name: 'late', outcomeOf });
    const most = { amount: decimalOf(3) };
    await budget.setLimit(most);
    const clients = [1, 2].map(() => new pg.Client({ connectionString: place.server.url(place.database) }));
    const [holder, other] = clients as [pg.Client, pg.Client];
    for (const client of clients) {
      await client.connect();
      onEnd(() => client.end());
    }
    await holder.query('BEGIN; SELECT FROM mgw.budgets FOR UPDATE');
    const reserved = budget.reserve({ ...chargeOf('r', 1), owner }, most);
    await waitingIn(place, 1);
    const declared = other.query('DELETE FROM mgw.leases');
    await waitingIn(place, 2);
    await holder.query('COMMIT');
    expect(await reserved).toEqual({ fits: true });
    await declared;
    expect(shown(await budget.state())).toMatchObject({ reserved: '1' });
  });

  it('reserves nothing for a process that was declared dead', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const lease = await ledger.lease();
    const { database } = ledger;
    const budget = new PostgresBudget({
      database,
      kind: 'batch',
      name: 'b',
      outcomeOf: () => Promise.resolve('open'),
    });
    const charge = { ...chargeOf('r', 1), owner: lease.owner };
    const most = { amount: decimalOf(3) };
    expect(await budget.reserve(charge, most)).toEqual({ fits: true });
    await place.server.query('DELETE FROM mgw.leases', place.database);
    await expect(budget.reserve({ ...charge, id: 'r2' }, most)).rejects.toMatchObject({ exitCode: 6 });
    expect(shown(await budget.state())).toMatchObject({ reserved: '1' });
  });

  it('reserves nothing under an expired lease', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const { owner } = await ledger.lease();
    const budget = new PostgresBudget({
      database: ledger.database,
      kind: 'batch',
      name: 'b',
      outcomeOf: () => Promise.resolve('open'),
    });
    const most = { amount: decimalOf(3) };
    await place.server.query('UPDATE mgw.leases SET until = clock_timestamp()', place.database);
    const late = budget.reserve({ ...chargeOf('r', 1), owner }, most);
    await expect(late).rejects.toMatchObject({ exitCode: 6 });
    await place.server.query("UPDATE mgw.leases SET until = 'infinity'", place.database);
    const other = { ...chargeOf('r', 1), owner: { ...owner, instance: 'another' } };
    await expect(budget.reserve(other, most)).rejects.toMatchObject({ exitCode: 6 });
    expect(shown(await budget.state())).toMatchObject({ reserved: '0' });
  });

  it('refuses to reopen a released reservation whose amount no longer fits', async () => {
    const budget = await budgetIn();
    const most = { amount: decimalOf(10) };
    expect(await budget.reserve(chargeOf('r', 6), most)).toEqual({ fits: true });
    await budget.release('r');
    expect(await budget.reserve(chargeOf('s', 6), most)).toEqual({ fits: true });
    // This is the state after the response to the first reservation is lost and its process is declared dead.
    expect(await budget.reserve(chargeOf('r', 6), most)).toMatchObject({ fits: false });
    expect(shown(await budget.state())).toMatchObject({ reserved: '6' });
  });

  it.each<[string, ('keep' | 'release' | number)[], object]>([
    ['kept and corrected', ['keep', 5], { spent: '5', reserved: '0' }],
    ['corrected and kept', [5, 'keep'], { spent: '5', reserved: '0' }],
    ['corrected twice', [5, 7], { spent: '7', reserved: '0' }],
    ['released and corrected', ['release', 5], { spent: '5', reserved: '0' }],
    ['corrected and released', [5, 'release'], { spent: '5', reserved: '0' }],
    ['kept twice', ['keep', 'keep'], { spent: '1', reserved: '0' }],
    ['released twice', ['release', 'release'], { spent: '0', reserved: '0' }],
    ['released and kept', ['release', 'keep'], { spent: '1', reserved: '0' }],
    ['kept and released', ['keep', 'release'], { spent: '1', reserved: '0' }],
  ])('counts a reservation once if it is %s concurrently', async (_, ways, standing) => {
    const place = await newPlace();
    const { database } = await place.open();
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const budget = new PostgresBudget({ database, kind: 'batch', name: 'b', outcomeOf });
    await budget.reserve(chargeOf('r', 1), { amount: decimalOf(3) });
    // Both operations start before either can finish.
    const holder = new pg.Client({ connectionString: place.server.url(place.database) });
    await holder.connect();
    onEnd(() => holder.end());
    await holder.query('BEGIN; SELECT FROM mgw.budgets FOR UPDATE');
    const settled: Promise<void>[] = [];
    for (const way of ways) {
      settled.push(typeof way === 'number' ? budget.keep('r', decimalOf(way)) : budget[way]('r'));
      await waitingIn(place, settled.length);
    }
    await holder.query('COMMIT');
    await Promise.all(settled);
    expect(shown(await budget.state())).toMatchObject(standing);
  });
});
