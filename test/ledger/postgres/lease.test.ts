import pg from 'pg';
import { expect, it } from 'vitest';
import type { Owner } from '../../../src/job.ts';
import type { Database } from '../../../src/ledger/postgres/database.ts';
import { LeaseKeeper } from '../../../src/ledger/postgres/lease-keeper.ts';
import { deadOwner } from '../../jobs/harness.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { describePostgres, type PostgresPlace } from './place.ts';

/** A lease keeper with a manual clock and with renewals that a test can await. */
interface Kept {
  keeper: LeaseKeeper;
  clock: { now: number; monotonic: number };
  /** Resolves with the rows that the next renewal returns. */
  renewal: () => Promise<unknown[]>;
  /** Runs a function during the next statement. */
  during: (act: () => void) => void;
}

async function keeperIn(place: PostgresPlace, leaseMs: number): Promise<Kept> {
  const { database } = await place.open();
  const clock = { now: 0, monotonic: 0 };
  let heard: ((rows: unknown[]) => void) | undefined;
  let act: (() => void) | undefined;
  const watched = {
    url: { ...database.url, leaseMs },
    table: (name: string) => database.table(name),
    combine: database.combine.bind(database),
    query: async (text: string, values?: readonly unknown[]) => {
      act?.();
      act = undefined;
      const rows = await database.query(text, values);
      if (text.startsWith('UPDATE')) heard?.(rows);
      return rows;
    },
  } as unknown as Database;
  const keeper = new LeaseKeeper(watched, { now: () => clock.now, monotonic: () => clock.monotonic });
  onEnd(() => keeper.close());
  const renewal = (): Promise<unknown[]> => new Promise((resolve) => (heard = resolve));
  return { keeper, clock, renewal, during: (given) => void (act = given) };
}

const longMs = 3_600_000;

describePostgres('on PostgreSQL,', (newPlace) => {
  it.each<[string, { now: number; monotonic: number }]>([
    ['the machine slept', { now: 0.9 * longMs, monotonic: 0 }],
    ['the time of day was set back', { now: -longMs, monotonic: 0.9 * longMs }],
  ])('a lease is not relied on if it may have ended while %s', async (_, passed) => {
    const { keeper, clock } = await keeperIn(await newPlace(), longMs);
    const lease = await keeper.lease();
    expect(() => lease.assertLease()).not.toThrow();
    Object.assign(clock, passed);
    expect(() => lease.assertLease()).toThrow('longer than its lease');
    // From now on, other processes identify the process by its new lease.
    const next = await keeper.lease();
    expect(next.owner.lease).not.toBe(lease.owner.lease);
    expect(() => next.assertLease()).not.toThrow();
  });

  it('a lease is valid for four fifths of its time, counted from before the request', async () => {
    const { keeper, clock, during } = await keeperIn(await newPlace(), longMs);
    during(() => (clock.monotonic += 0.3 * longMs));
    const lease = await keeper.lease();
    clock.monotonic = 0.79 * longMs;
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic = 0.81 * longMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
  });

  it('a lease is acquired again if the response arrives too late', async () => {
    const { keeper, clock, during } = await keeperIn(await newPlace(), longMs);
    during(() => (clock.monotonic += longMs));
    const lease = await keeper.lease();
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic += 0.81 * longMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
  });

  it('a lease is uncertain until it ends if it belongs to a process on another machine', async () => {
    const place = await newPlace();
    const [{ keeper }, other] = [await keeperIn(place, longMs), await keeperIn(place, longMs)];
    const { lease = '', instance } = (await other.keeper.lease()).owner;
    const afar: Owner = { pid: 7, start: '1', host: 'afar', lease, instance };
    const found = await keeper.uncertainLease(afar);
    expect(found?.leftMs).toBeGreaterThan(0.9 * longMs);
    expect(found?.until).toMatch(/^\d{4}-/);
    expect(await (await place.open()).uncertainLease(afar)).toMatchObject({ until: found?.until });
    expect(await keeper.uncertainLease({ ...afar, instance: 'another' })).toBeUndefined();
    await place.server.query('UPDATE mgw.leases SET until = clock_timestamp()', place.database);
    expect(await keeper.uncertainLease(afar)).toBeUndefined();
  });

  it('a lease is shared by all concurrent callers', async () => {
    const { keeper } = await keeperIn(await newPlace(), longMs);
    const all = await Promise.all([keeper.lease(), keeper.lease(), keeper.lease()]);
    expect(new Set(all.map(({ owner }) => owner.lease)).size).toBe(1);
  });

  const shortMs = 4000;
  const untilOf = (place: PostgresPlace): Promise<string> =>
    place.server.query('SELECT until FROM mgw.leases', place.database);

  it('a lease is renewed while its process runs', async () => {
    const place = await newPlace();
    const { keeper, clock, renewal, during } = await keeperIn(place, shortMs);
    const lease = await keeper.lease();
    const before = await untilOf(place);
    clock.monotonic = 0.5 * shortMs;
    // The lease's time is counted from before the renewal was sent.
    during(() => (clock.monotonic = 0.7 * shortMs));
    expect(await renewal()).toHaveLength(1);
    expect(await untilOf(place)).not.toBe(before);
    clock.monotonic = 1.2 * shortMs;
    expect(() => lease.assertLease()).not.toThrow();
    clock.monotonic = 1.4 * shortMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
    expect(await renewal()).toHaveLength(1);
  });

  it.each<[string, string]>([
    ['has ended by the clock of the database', "until = clock_timestamp() - interval '1 second'"],
    ['belongs to another process', "instance = 'another'"],
  ])('a lease is not renewed if it %s', async (_, change) => {
    const place = await newPlace();
    const { keeper, clock, renewal } = await keeperIn(place, shortMs);
    const lease = await keeper.lease();
    await place.server.query(`UPDATE mgw.leases SET ${change}`, place.database);
    const before = await untilOf(place);
    clock.monotonic = 0.5 * shortMs;
    expect(await renewal()).toEqual([]);
    expect(await untilOf(place)).toBe(before);
    clock.monotonic = 0.9 * shortMs;
    expect(() => lease.assertLease()).toThrow('longer than its lease');
  });

  it('a lease is ended only by the first process that checks it after it has expired', async () => {
    const place = await newPlace();
    const [one, other] = [await keeperIn(place, longMs), await keeperIn(place, longMs)];
    const { owner } = await one.keeper.lease();
    const afar: Owner = { ...owner, host: 'afar' };
    const lifeOf = async (asked: Owner): Promise<string> => (await other.keeper.livesOf([asked]))(asked);
    expect(await lifeOf(afar)).toBe('alive');
    expect(await lifeOf({ ...afar, instance: 'another' })).toBe('dead');
    expect(await untilOf(place)).not.toBe('');
    await place.server.query('UPDATE mgw.leases SET until = clock_timestamp()', place.database);
    expect(await lifeOf(afar)).toBe('dead');
    expect(await untilOf(place)).toBe('');
  });

  it('a lease is ended immediately if its process is proven dead on this machine', async () => {
    const place = await newPlace();
    const [one, other] = [await keeperIn(place, longMs), await keeperIn(place, longMs)];
    const { lease = '', instance } = (await one.keeper.lease()).owner;
    const dead: Owner = { ...deadOwner(), lease, instance };
    expect((await other.keeper.livesOf([dead]))(dead)).toBe('dead');
    expect(await untilOf(place)).toBe('');
  });

  it('a lease is released when its process exits', async () => {
    const place = await newPlace();
    const { keeper } = await keeperIn(place, longMs);
    await keeper.lease();
    await keeper.close();
    expect(await untilOf(place)).toBe('');
  });

  it("a lease is not needed for a claim, and a claim waits for another process's claim of the same name", async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const other = new pg.Client({ connectionString: place.server.url(place.database) });
    await other.connect();
    onEnd(() => other.end());
    await other.query('BEGIN');
    await other.query("INSERT INTO mgw.claims VALUES ('boat', 'of the other', gen_random_uuid(), true)");
    const claimed = ledger.claim('boat', 'own');
    const waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    await expect.poll(() => place.server.query(waiting, place.database)).not.toBe('0');
    await other.query('COMMIT');
    expect(await claimed).toBe('of the other');
  });
});
