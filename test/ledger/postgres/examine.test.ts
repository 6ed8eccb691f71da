import { expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { dropLedger, examineLedger, createLedger } from '../../../src/ledger/postgres/examine.ts';
import { openPostgresLedger } from '../../../src/ledger/postgres/postgres-ledger.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { freshFolder } from '../../support/servers.ts';
import { now } from '../conformance.ts';
import { describePostgres, type PostgresPlace } from './place.ts';

const clock = { now: () => now, monotonic: () => 0 };

it.each<[string, object, object[], string[]]>([
  ['PostgreSQL 14 and a clock that is 5 seconds behind', { number: 140_000, clock: now + 5000 }, [], []],
  ['a clock that is 5 seconds ahead', { clock: now - 5000 }, [], []],
  ['PostgreSQL 13', { number: 139_999 }, [], ['too old']],
  ['a clock that is more behind', { clock: now + 5001 }, [], ['clock differs']],
  ['a clock that is more ahead', { clock: now - 5001 }, [], ['clock differs']],
  ['fsync=off', { fsync: 'off' }, [], ['fsync is off']],
  ['full_page_writes=off', { pages: 'off' }, [], ['full_page_writes is off']],
  ['a standby', {}, [{ standby: true }], ['is a standby']],
  ['two databases behind one address', {}, [{ ledger: 'b' }], ['different databases']],
])('the database check of %s causes the right warnings', async (_, settings, endpoints, texts) => {
  const remaining = [...endpoints];
  vi.spyOn(Database.prototype, 'supportsTransactions').mockResolvedValue(true);
  vi.spyOn(Database.prototype, 'query').mockImplementation((text) => {
    const found = { encoding: 'UTF8', foreign_names: null, ledger: 'a', version: 2, standby: false };
    const usual = { server: '16.1', number: 160_001, clock: now, fsync: 'on', pages: 'on', jobs: 0 };
    if (text.includes('standby')) return Promise.resolve([{ ...found, ...remaining.pop() }] as never[]);
    return Promise.resolve([{ ...found, ...usual, ...settings }] as never[]);
  });
  const examination = examineLedger(parseStateUrl('postgres://127.0.0.1/d'), clock);
  const { warnings } = await examination.finally(() => vi.restoreAllMocks());
  expect(warnings).toEqual(texts.map((text) => expect.stringContaining(text) as string));
});

describePostgres('on PostgreSQL,', (newPlace) => {
  it('the database check detects a server that may lose confirmed writes, a difference between the clocks, and a pool that breaks transactions', async () => {
    const { server, database, open } = await newPlace();
    await open();
    const lossy = [
      expect.stringContaining('fsync is off'),
      expect.stringContaining("This machine's clock differs from the database's clock"),
    ] as string[];
    const check = (port?: number): ReturnType<typeof examineLedger> =>
      examineLedger(parseStateUrl(server.url(database, port)), clock);
    expect((await check()).warnings).toEqual(lossy);
    // Half of the statement's duration is subtracted from the difference.
    let ms = 0;
    const slow = { now: () => Date.now() + 3_600_000, monotonic: () => (ms += 600_000) };
    const { tripMs, lagMs } = await examineLedger(parseStateUrl(server.url(database)), slow);
    expect([tripMs, Math.round(lagMs / 60_000)]).toEqual([600_000, 60 - 5]);
    if (!hasPgBouncer) return;
    for (const [mode, isBroken] of [
      ['transaction', false],
      ['statement', true],
    ] as const) {
      const pool = await PgBouncer.open(server.port, mode);
      onEnd(() => pool.close());
      const { warnings } = await check(pool.port);
      expect(warnings.some((text) => text.includes('pool_mode = transaction'))).toBe(isBroken);
    }
  });

  it('the database check refuses tables of another version without changing them', async () => {
    const place = await newPlace();
    await place.open();
    await place.server.query('DROP TABLE mgw.claims', place.database);
    const url = parseStateUrl(place.server.url(place.database));
    for (const [version, text] of [
      [1, 'No released version of mgw created such tables'],
      [99, 'Update mgw'],
    ]) {
      await place.server.query(`UPDATE mgw.meta SET version = ${version}`, place.database);
      const refusal = { code: 'config', message: expect.stringContaining(String(text)) as string };
      await expect(examineLedger(url, clock)).rejects.toMatchObject(refusal);
      await expect(createLedger(url)).rejects.toMatchObject(refusal);
    }
    expect(await place.server.query("SELECT to_regclass('mgw.claims')", place.database)).toBe('');
  });

  it('the database check refuses a schema without tables or without an identity, and suggests the command that creates them', async () => {
    const place = await newPlace();
    const url = parseStateUrl(place.server.url(place.database));
    const missing = { code: 'config', next: ['mgw', 'state', 'init'] };
    const notes: string[] = [];
    await createLedger(url, (text) => notes.push(text));
    expect(notes).toEqual([]);
    await place.server.query('DELETE FROM mgw.meta', place.database);
    await expect(examineLedger(url, clock)).rejects.toMatchObject(missing);
    expect((await createLedger(url)).version).toBe(2);
    await dropLedger(url);
    await expect(examineLedger(url, clock)).rejects.toMatchObject(missing);
    await expect(
      openPostgresLedger(url, { stateDir: freshFolder(), clock: systemClock }),
    ).rejects.toMatchObject(missing);
    expect((await createLedger(url)).version).toBe(2);
  });

  it("the database check refuses another role's schema or table, and a role that can only read", async () => {
    const place = await newPlace();
    await place.open();
    const { server, database } = place;
    await server.query('create role reader login; grant pg_read_all_data to reader', database);
    const url = parseStateUrl(server.url(database));
    const asReader = parseStateUrl(url.href.replace('postgres@', 'reader@'));
    const refusal = { exitCode: 2, message: expect.stringContaining('does not own') as string };
    await expect(examineLedger(asReader, clock)).rejects.toMatchObject(refusal);
    const parts = `SELECT count(*) FROM pg_class WHERE relnamespace = 'mgw'::regnamespace`;
    const hidden = Number(await server.query(parts, database)) + 1 - 3;
    await expect(examineLedger(asReader, clock)).rejects.toThrow(`, and ${hidden} others. Make it`);
    await server.query('alter table mgw.claims owner to reader', database);
    await expect(examineLedger(url, clock)).rejects.toMatchObject(refusal);
    await expect(
      openPostgresLedger(url, { stateDir: freshFolder(), clock: systemClock }),
    ).rejects.toMatchObject(refusal);
    await server.query('alter table mgw.claims owner to postgres; drop role reader', database);
    const other = parseStateUrl(`${url.href}?schema=squatted`);
    await server.query('create role squatter; create schema squatted authorization squatter', database);
    await expect(createLedger(other)).rejects.toMatchObject(refusal);
    await server.query('drop schema squatted; drop role squatter', database);
  });

  it('the database check refuses the owner of the tables if it lacks a right or its transactions are read-only', async () => {
    const { server, database } = await newPlace();
    await server.query(`create role owner login; grant create on database ${database} to owner`, database);
    const url = parseStateUrl(server.url(database).replace('postgres@', 'owner@'));
    await createLedger(url);
    expect(await examineLedger(url, clock)).toMatchObject({ jobs: 0 });
    for (const [change, message] of [
      ['revoke insert on mgw.events from owner', 'lacks permission to read and write these tables: events.'],
      [
        'grant insert on mgw.events to owner; alter role owner set default_transaction_read_only = on',
        'is read-only, because',
      ],
    ] as const) {
      await server.query(change, database);
      await expect(examineLedger(url, clock)).rejects.toMatchObject({
        exitCode: 2,
        message: expect.stringContaining(message) as string,
      });
    }
    await server.query('drop owned by owner; drop role owner', database);
  });

  /** Opens the database with its current settings. */
  const opened = ({ server, database }: PostgresPlace): Database => {
    const connected = new Database(parseStateUrl(server.url(database)));
    onEnd(() => connected.close());
    return connected;
  };

  it('the database check does not run a function or operator from `public`', async () => {
    const place = await newPlace();
    await place.server.query(
      `create function public.length(varchar) returns int language sql as 'select -1';
       create function public.differ(varchar, varchar) returns boolean language sql as 'select false';
       create operator public.= (leftarg = varchar, rightarg = varchar, function = public.differ)`,
      place.database,
    );
    const database = opened(place);
    // A statement without values is sent in a different way.
    for (const [text, values] of [
      ["SELECT length($1::varchar) AS n, $2::varchar = 'x'::varchar AS m", ['abc', 'x']],
      ["SELECT length('abc'::varchar) AS n, 'x'::varchar = 'x'::varchar AS m", []],
    ] as const)
      expect(await database.query(text, values)).toEqual([{ n: 3, m: true }]);
  });

  it('the database check makes a durable statement wait for the disk, regardless of synchronous_commit', async () => {
    const place = await newPlace();
    const text = "SELECT current_setting('synchronous_commit') AS mode";
    for (const [setting, commit, mode] of [
      ['local', 'durable', 'on'],
      ['remote_write', 'durable', 'remote_write'],
      ['on', 'soon', 'off'],
      ['off', 'durable', 'on'],
      ['off', undefined, 'off'],
    ] as const) {
      await place.server.query(`alter database ${place.database} set synchronous_commit = ${setting}`);
      const database = opened(place);
      expect(await database.query(text, [], commit), setting).toEqual([{ mode }]);
      expect(await database.query(`${text} WHERE $1::boolean`, [true], commit)).toEqual([{ mode }]);
    }
  });
});
