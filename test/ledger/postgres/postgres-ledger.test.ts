import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import pg from 'pg';
import { expect, it, vi } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import type { JobEvent, Owner } from '../../../src/job.ts';
import { encodeEvent } from '../../../src/ledger/event-log.ts';
import { findJobById } from '../../../src/ledger/chain.ts';
import { newJobId } from '../../../src/ledger/names.ts';
import { UnwrittenEvents } from '../../../src/ledger/kept-facts.ts';
import type { Database } from '../../../src/ledger/postgres/database.ts';
import { LeaseKeeper } from '../../../src/ledger/postgres/lease-keeper.ts';
import { identityOf } from '../../../src/ledger/postgres/schema.ts';
import type { Ledger, Lease } from '../../../src/ledger/ledger.ts';
import { deadOwner } from '../../jobs/harness.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { newUser, type Running } from '../../support/cli.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { userHere } from '../../support/one-process.ts';
import { freshFolder, httpServer, sendJson, type HttpServer } from '../../support/servers.ts';
import { stoppable } from '../../support/test-clock.ts';
import { accepted, now, prepared } from '../conformance.ts';
import { describePostgres, type OpenOptions, type PostgresPlace } from './place.ts';

const quick = 'connect_timeout=1';
// The timeout is long because a statement that must succeed may take seconds on a busy machine.
const patient = { parameters: 'connect_timeout=60' };

function sendingBy({ owner }: Lease): JobEvent {
  return { type: 'sending', attempt: 1, owner };
}

async function typesOf(ledger: Ledger, id: string): Promise<(string | undefined)[]> {
  return (await ledger.events(id)).map((event) => event?.type);
}

/** A lease keeper, and a function that resolves with the rows that the next renewal returns. */
interface Kept {
  keeper: LeaseKeeper;
  renewal: () => Promise<unknown[]>;
}

async function keeperIn(place: PostgresPlace, leaseMs = 3_600_000): Promise<Kept> {
  const { database } = await place.open();
  let onRows: ((rows: unknown[]) => void) | undefined;
  const watched = {
    url: { ...database.url, leaseMs },
    table: (name: string) => database.table(name),
    combine: database.combine.bind(database),
    query: async (text: string, values?: readonly unknown[]) => {
      const rows = await database.query(text, values);
      if (text.startsWith('UPDATE')) onRows?.(rows);
      return rows;
    },
  } as unknown as Database;
  const keeper = new LeaseKeeper(watched, { now: () => 0, monotonic: () => 0 });
  onEnd(() => keeper.close());
  const renewal = (): Promise<unknown[]> => new Promise((resolve) => (onRows = resolve));
  return { keeper, renewal };
}

/** Starts a Protocol C gateway that accepts every submission and whose tasks never finish. */
async function gateway(): Promise<HttpServer & { creations: () => number }> {
  let count = 0;
  const server = await httpServer(({ method }, response) => {
    if (method === 'POST') count += 1;
    sendJson(response, { id: `task_${count}`, status: 'queued' });
  });
  return Object.assign(server, { creations: () => count });
}

function submission(prompt: string, ...more: string[]): string[] {
  return ['video', 'c', 'submit', prompt, '--model', 'vendor-h3', '--no-check', '--json', ...more];
}

describePostgres('on PostgreSQL,', (newPlace) => {
  /** Opens the ledger through a proxy, creates a job, and opens the ledger a second time as another machine would. */
  const behindProxy = async (
    options: OpenOptions = {},
  ): Promise<
    PostgresPlace & { proxy: CuttingProxy; ledger: Ledger; other: Ledger; id: string; stateDir: string }
  > => {
    const place = await newPlace();
    const other = await place.open({ stateDir: freshFolder() });
    const proxy = await CuttingProxy.open(place.server.port);
    const stateDir = freshFolder();
    const ledger = await place.open({ port: proxy.port, parameters: quick, stateDir, ...options });
    const id = newJobId(now);
    await ledger.create(id, [prepared]);
    return { ...place, proxy, ledger, other, id, stateDir };
  };
  const openAt = async (place: PostgresPlace, stateDir: string): Promise<Ledger> => place.open({ stateDir });

  it.each(['message', 'answer'] as const)(
    'the ledger writes an event, creates a job and claims a name only once if the connection breaks and the %s is lost',
    async (lose) => {
      const { proxy, ledger, other, id } = await behindProxy(patient);
      const lease = await ledger.lease();
      for (const event of [sendingBy(lease), accepted]) {
        const cut = proxy.cutAt({ at: new RegExp(event.type), lose });
        await ledger.append(id, event);
        await cut;
      }
      expect(await typesOf(other, id)).toEqual(['prepared', 'sending', 'accepted']);
      expect(await other.read(id)).toMatchObject({ state: 'queued', handle: 'task_1' });
      const second = newJobId(now + 1);
      const creation = proxy.cutAt({ at: new RegExp(second), lose });
      await ledger.create(second, [prepared]);
      await creation;
      const claim = proxy.cutAt({ at: /INSERT INTO mgw.claims|send\.1/, lose });
      expect(await ledger.claim('send.1', 'mine')).toBeUndefined();
      await claim;
      expect(await typesOf(other, second)).toEqual(['prepared']);
      expect(await other.claim('send.1', 'theirs')).toBe('mine');
    },
  );

  it('a job counts as lost if its events were deleted from the table', async () => {
    const { open } = await newPlace();
    const ledger = await open();
    const id = newJobId(now);
    await ledger.create(id, [prepared]);
    await ledger.database.query(`DELETE FROM ${ledger.database.table('events')}`);
    expect(await findJobById(ledger, id)).toEqual({ claimState: 'lost' });
  });

  it('the ledger leaves no unsent attempt in doubt if the connection breaks and the answer for "sending" is lost', async () => {
    const { proxy, ledger, other, id, stateDir, ...place } = await behindProxy();
    const lease = await ledger.lease();
    void proxy.cutAt({ at: /sending/, lose: 'answer' }).then(() => proxy.down());
    await expect(ledger.append(id, sendingBy(lease))).rejects.toMatchObject({
      code: 'unreachable',
      exitCode: 6,
    });
    // A process that cannot record `sending` later records that nothing was sent.
    const error = { code: 'local_io', message: 'nothing was sent' } as const;
    const unsent = ledger.append(id, { type: 'unavailable', attempt: 1, error });
    await expect(unsent).rejects.toThrow('The event was saved');
    await place.server.query('DELETE FROM mgw.leases', place.database);
    expect((await other.read(id))?.state).toBe('sending');
    await openAt({ ...place }, stateDir);
    expect(await other.read(id)).toMatchObject({ state: 'prepared', record: { attempts: 1 } });
  });

  it('the ledger keeps a handle, and writes it only once, if the connection breaks and the answer for its record is lost', async () => {
    const { proxy, ledger, other, id, stateDir, ...place } = await behindProxy();
    const saved = (): unknown[] =>
      readdirSync(stateDir, { recursive: true }).filter((name) => String(name).endsWith('.json'));
    await ledger.append(id, sendingBy(await ledger.lease()));
    void proxy.cutAt({ at: /accepted/, lose: 'answer' }).then(() => proxy.down());
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({
      message: expect.stringContaining(stateDir) as string,
    });
    expect(saved()).toHaveLength(1);
    const next = await openAt({ ...place }, stateDir);
    expect(await next.read(id)).toMatchObject({ state: 'queued', handle: 'task_1' });
    expect(await typesOf(other, id)).toEqual(['prepared', 'sending', 'accepted']);
    expect(await other.lookup('handle', 'task_1')).toEqual([id]);
    expect(saved()).toEqual([]);
  });

  it('the ledger writes the pending events in order as soon as the database is back, or when it is closed', async () => {
    const { proxy, ledger, other, id } = await behindProxy();
    await ledger.append(id, sendingBy(await ledger.lease()));
    proxy.down();
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({ exitCode: 6 });
    await expect(ledger.flush()).rejects.toMatchObject({ exitCode: 6 });
    proxy.up();
    await ledger.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    expect(await typesOf(other, id)).toEqual(['prepared', 'sending', 'accepted', 'observed']);
    proxy.down();
    const finished: JobEvent = { type: 'finished', state: 'succeeded', native_status: 'ok' };
    await expect(ledger.append(id, finished)).rejects.toMatchObject({ exitCode: 6 });
    proxy.up();
    await ledger.close();
    expect((await typesOf(other, id)).at(-1)).toBe('finished');
  });

  it('the ledger does not lose a handle while the database refuses it', async () => {
    const place = await newPlace();
    const stateDir = freshFolder();
    const ledger = await openAt(place, stateDir);
    const id = newJobId(now);
    await ledger.create(id, [prepared]);
    await ledger.append(id, sendingBy(await ledger.lease()));
    await place.server.query('ALTER TABLE mgw.events RENAME line TO gone', place.database);
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({
      code: 'config',
      message: expect.stringContaining(stateDir) as string,
    });
    await expect(openAt(place, stateDir)).rejects.toMatchObject({ code: 'config' });
    await place.server.query('ALTER TABLE mgw.events RENAME gone TO line', place.database);
    const next = await openAt(place, stateDir);
    expect(await next.read(id)).toMatchObject({ state: 'queued', handle: 'task_1' });
  });

  it('the ledger continues after the server is killed and restarted', async () => {
    const place = await newPlace();
    const ledger = await place.open(patient);
    const id = newJobId(now);
    await ledger.create(id, [prepared, accepted]);
    await place.server.kill();
    const append = ledger.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    await place.server.start();
    await append;
    expect(await ledger.read(id)).toMatchObject({ state: 'running' });
  });

  it('the ledger fails without exposing the password if the network is partitioned', async () => {
    const { proxy, server, database, open } = await behindProxy();
    const ledger = await open({ port: proxy.port, parameters: `${quick}&password=hunter2secret` });
    expect(server.url(database)).not.toContain('hunter2secret');
    proxy.hold();
    const error = await ledger.ids().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'unreachable', exitCode: 6 });
    expect(JSON.stringify([error, String(error)])).not.toContain('hunter2secret');
  });

  it('the ledger refuses new actions of a process whose lease has expired, but records its past events', async () => {
    const place = await newPlace();
    const clock = stoppable({ ...systemClock, now: () => now });
    const [ledger, other] = [await place.open({ clock }), await place.open()];
    const id = newJobId(now);
    const lease = await ledger.lease();
    await ledger.create(id, [
      prepared,
      { type: 'began', run: 'r', owner: lease.owner, command: 'submit', ask: 'file' },
    ]);
    expect(await other.lifeOf(lease.owner)).toBe('alive');
    lease.assertLease();
    await place.server.query(`UPDATE mgw.leases SET until = now() - interval '1 s'`, place.database);
    clock.stop(31_000);
    expect(() => lease.assertLease()).toThrow(/suspended/);
    await expect(ledger.append(id, sendingBy(lease))).rejects.toMatchObject({ exitCode: 6 });
    await expect(ledger.create(newJobId(now + 1), [prepared, { ...sendingBy(lease) }])).rejects.toMatchObject(
      {
        exitCode: 6,
      },
    );
    expect(await other.lifeOf(lease.owner)).toBe('dead');
    await ledger.append(id, accepted);
    expect(await other.read(id)).toMatchObject({ state: 'queued', handle: 'task_1' });
    const next = await ledger.lease();
    expect(next.owner.lease).not.toBe(lease.owner.lease);
    expect([await other.lifeOf(lease.owner), await other.lifeOf(next.owner)]).toEqual(['dead', 'alive']);
  });

  it("the ledger reads a process's last event even if the process dies during the read", async () => {
    const place = await newPlace();
    const [ledger, other] = [await place.open(), await place.open()];
    const id = newJobId(now);
    await ledger.create(id, [prepared, sendingBy(await ledger.lease())]);
    const query = other.database.query.bind(other.database);
    vi.spyOn(other.database, 'query').mockImplementationOnce(async (text, values) => {
      const lines = await query(text, values);
      await ledger.append(id, accepted);
      await ledger.close();
      return lines;
    });
    expect(await other.read(id)).toMatchObject({ state: 'queued', handle: 'task_1' });
  });

  it('the ledger declares a process dead only once none of its writes can still arrive', async () => {
    const place = await newPlace();
    const [ledger, other] = [await place.open(), await place.open()];
    const id = newJobId(now);
    await ledger.create(id, [prepared]);
    const lease = await ledger.lease();
    // The process's write has passed the lease check and is waiting for the job's locked row.
    const lock = place.server.query(
      `BEGIN; SELECT FROM mgw.jobs FOR UPDATE; SELECT pg_sleep(300); COMMIT`,
      place.database,
    );
    const ended = expect(lock).rejects.toThrow();
    const isWaiting = async (): Promise<string> =>
      place.server.query(
        `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
        place.database,
      );
    await expect
      .poll(() => place.server.query(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'`))
      .toBe('1');
    const writing = ledger.append(id, sendingBy(lease));
    await expect.poll(isWaiting).toBe('1');
    await place.server.query(`UPDATE mgw.leases SET until = now() - interval '1 s'`, place.database);
    const found = other
      .lifeOf(lease.owner)
      .then(async (life) => ({ life, state: (await other.read(id))?.state }));
    await expect.poll(isWaiting).toBe('2');
    await place.server.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'`,
    );
    expect(await found).toEqual({ life: 'dead', state: 'sending' });
    await Promise.all([writing, ended]);
    await expect(ledger.append(id, sendingBy(lease))).rejects.toMatchObject({ exitCode: 6 });
  });

  it('a removed job has no events, even if one was written during the removal', async () => {
    const place = await newPlace();
    const ledger = await place.open();
    const id = newJobId(now);
    await ledger.create(id, [prepared]);
    const writer = new pg.Client({ connectionString: place.server.url(place.database) });
    await writer.connect();
    try {
      await writer.query('BEGIN');
      await writer.query('UPDATE mgw.jobs SET n = 2 WHERE id = $1', [id]);
      await writer.query('INSERT INTO mgw.events (job, n, uid, line) VALUES ($1, 2, $2, $3)', [
        id,
        randomUUID(),
        encodeEvent(accepted, now).trim(),
      ]);
      const removed = ledger.remove(id);
      const waiting = 'SELECT count(*) FROM pg_locks WHERE NOT granted';
      await expect.poll(() => place.server.query(waiting, place.database)).not.toBe('0');
      await writer.query('COMMIT');
      await removed;
    } finally {
      await writer.end();
    }
    expect(await place.server.query('SELECT count(*) FROM mgw.events', place.database)).toBe('0');
    expect(await ledger.read(id)).toBeUndefined();
  });

  // Only "sending" requires a lease.
  it.each<[string, (lease: Lease) => JobEvent]>([
    ['sending', sendingBy],
    ['accepted', () => accepted],
  ])(
    'the ledger records "%s" once if the connection breaks while the server writes the event',
    async (type, eventBy) => {
      const { proxy, ledger, other, id, server, database } = await behindProxy(patient);
      const lease = await ledger.lease();
      const lock = server.query(`BEGIN; SELECT FROM mgw.jobs FOR UPDATE; SELECT pg_sleep(300)`, database);
      const ended = expect(lock).rejects.toThrow();
      const waiting = (): Promise<string> =>
        server.query(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`, database);
      const sleeping = `FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
      await expect.poll(() => server.query(`SELECT count(*) ${sleeping}`)).toBe('1');
      const appended = ledger.append(id, eventBy(lease));
      await expect.poll(waiting).toBe('1');
      proxy.cutAll();
      await expect.poll(waiting).toBe('2');
      await server.query(`SELECT pg_terminate_backend(pid) ${sleeping}`);
      await Promise.all([appended, ended]);
      expect(await typesOf(other, id)).toEqual(['prepared', type]);
    },
  );

  it('the ledger renews its lease while it is open, and ends the lease when it is closed', async () => {
    const place = await newPlace();
    const [ledger, other] = [await place.open({ parameters: 'lease=2s' }), await place.open()];
    const lease = await ledger.lease();
    const until = (): Promise<string> => place.server.query('SELECT until FROM mgw.leases', place.database);
    const first = await until();
    await expect.poll(until).not.toBe(first);
    lease.assertLease();
    expect(await other.lifeOf(lease.owner)).toBe('alive');
    await ledger.close();
    expect(await other.lifeOf(lease.owner)).toBe('dead');
  });

  it("the ledger causes a batch row to be checked again once its job's pending event is written", async () => {
    const place = await newPlace();
    const { database } = await place.open();
    const [stateDir, owner] = [freshFolder(), { pid: 7, start: '1', host: 'here' }];
    const { ledger: identity } = await identityOf(database);
    const [batch, alone, saved] = [newJobId(now), newJobId(now + 1), newJobId(now + 3)];
    const fleet = await place.open();
    await fleet.create(batch, [
      { ...prepared, key: 'films/boat/2' },
      { type: 'sending', attempt: 1, owner },
    ]);
    await fleet.create(alone, [{ ...prepared, key: 'films' }]);
    await fleet.create(saved, [{ ...prepared, key: 'films/ship' }]);
    const row = (id: string, state: string, outcome: string): string =>
      `('films', '${id}', '', '', '${state}', ${outcome})`;
    const rows = [
      row('boat', 'ended', "'unknown'"),
      row('boat/2', 'taken', 'NULL'),
      row('ship', 'ended', "'saved'"),
      row('storm', 'ended', "'unknown'"),
    ];
    await place.server.query(
      `INSERT INTO mgw.batches (name, gateway, head) VALUES ('films', '', '');
       INSERT INTO mgw.batch_rows (batch, id, hash, content, state, outcome) VALUES ${rows.join(', ')}`,
      place.database,
    );
    const facts = new UnwrittenEvents(stateDir, identity);
    for (const job of [batch, alone, saved, newJobId(now + 2)])
      await facts.keep({ job, uid: randomUUID(), line: encodeEvent(accepted, now).trimEnd() });
    await place.open({ stateDir });
    expect(facts.files()).toEqual([]);
    expect(await fleet.read(batch)).toMatchObject({ handle: 'task_1' });
    const states = await database.query('SELECT id, state, outcome FROM mgw.batch_rows ORDER BY id');
    expect(states).toEqual([
      { id: 'boat', state: 'waiting', outcome: 'again' },
      { id: 'boat/2', state: 'taken', outcome: 'again' },
      { id: 'ship', state: 'ended', outcome: 'saved' },
      { id: 'storm', state: 'ended', outcome: 'unknown' },
    ]);
  });

  it('a lease is uncertain until it ends if it belongs to a process on another machine', async () => {
    const place = await newPlace();
    const [{ keeper }, other] = [await keeperIn(place), await keeperIn(place)];
    const { lease = '', instance } = (await other.keeper.lease()).owner;
    const afar: Owner = { pid: 7, start: '1', host: 'afar', lease, instance };
    const found = await keeper.uncertainLease(afar);
    expect(found?.leftMs).toBeGreaterThan(3_000_000);
    expect(found?.until).toMatch(/^\d{4}-/);
    expect(await (await place.open()).uncertainLease(afar)).toMatchObject({ until: found?.until });
    expect(await keeper.uncertainLease({ ...afar, instance: 'another' })).toBeUndefined();
    await place.server.query('UPDATE mgw.leases SET until = clock_timestamp()', place.database);
    expect(await keeper.uncertainLease(afar)).toBeUndefined();
  });

  const untilOf = (place: PostgresPlace): Promise<string> =>
    place.server.query('SELECT until FROM mgw.leases', place.database);

  it.each<[string, string]>([
    ['has ended by the clock of the database', "until = clock_timestamp() - interval '1 second'"],
    ['belongs to another process', "instance = 'another'"],
  ])('a lease is not renewed if it %s', async (_, change) => {
    const place = await newPlace();
    const { keeper, renewal } = await keeperIn(place, 4000);
    await keeper.lease();
    await place.server.query(`UPDATE mgw.leases SET ${change}`, place.database);
    const before = await untilOf(place);
    expect(await renewal()).toEqual([]);
    expect(await untilOf(place)).toBe(before);
  });

  it('a lease is ended only by the first process that checks it after it has expired, or that finds its process dead', async () => {
    const place = await newPlace();
    const [one, other] = [await keeperIn(place), await keeperIn(place)];
    const { owner } = await one.keeper.lease();
    const afar: Owner = { ...owner, host: 'afar' };
    const lifeOf = async (asked: Owner): Promise<string> => (await other.keeper.livesOf([asked]))(asked);
    expect(await lifeOf(afar)).toBe('alive');
    expect(await lifeOf({ ...afar, instance: 'another' })).toBe('dead');
    expect(await untilOf(place)).not.toBe('');
    await place.server.query('UPDATE mgw.leases SET until = clock_timestamp()', place.database);
    expect(await lifeOf(afar)).toBe('dead');
    expect(await untilOf(place)).toBe('');
    const { owner: killed } = await (await keeperIn(place)).keeper.lease();
    expect(await lifeOf({ ...deadOwner(), lease: killed.lease, instance: killed.instance })).toBe('dead');
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

  it('two processes on different machines are charged once for one key', async () => {
    const server = await gateway();
    const place = await newPlace();
    await place.open();
    const state = { MGW_STATE: place.server.url(place.database) };
    const users = [1, 2].map(() => newUser(server.url, state));
    const runs = users.map((user) => user.run(submission('a paper boat', '--key', 'boat')));
    const results = await Promise.all(runs);
    expect(results.map(({ code }) => code)).toEqual([0, 0]);
    expect(new Set(results.map(({ json }) => json.job.handle)).size).toBe(1);
    expect(server.creations()).toBe(1);
  });

  it('a process sends nothing after being stopped for longer than its lease', async () => {
    const server = await gateway();
    const place = await newPlace();
    await place.open();
    const proxy = await CuttingProxy.open(place.server.port);
    const stateOf = (port?: number): string =>
      `${place.server.url(place.database, port)}?connect_timeout=8&lease=2s`;
    const stopped = newUser(server.url, { MGW_STATE: stateOf(proxy.port) });
    const other = userHere(server.url, { MGW_STATE: stateOf() });
    const cut = proxy.cutAt({ at: /"sending"/, lose: 'answer' });
    const run: Running = stopped.start(submission('a paper boat'));
    await cut;
    // The database has recorded "sending", but the process has not received the response.
    run.child.kill('SIGSTOP');
    const states = async (): Promise<unknown> => {
      const { json } = await other.run(['jobs', 'ls', '--json']);
      return (json['jobs'] as { state: string }[])[0]?.state;
    };
    await expect.poll(states, { interval: 500 }).toBe('unknown');
    expect((await other.run(submission('a paper boat'))).code).toBe(7);
    run.child.kill('SIGCONT');
    expect((await run.result).code).toBe(6);
    expect(server.creations()).toBe(0);
    // The process's record resolved the doubt.
    expect(await states()).toBe('prepared');
    expect((await other.run(submission('a paper boat'))).code).toBe(0);
    expect(server.creations()).toBe(1);
  });
});
