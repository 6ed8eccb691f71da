import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway } from '../gateway.ts';
import { openDatabase } from './database.ts';
import { Fleet } from './fleet.ts';
import { Machines } from './machines.ts';

describe.skipIf(!hasPostgres)('a batch on many machines', () => {
  let server: PostgresServer;
  let pool: PgBouncer | undefined;
  beforeAll(async () => {
    server = await PostgresServer.open();
    pool = hasPgBouncer ? await PgBouncer.open(server.port) : undefined;
  });
  afterAll(async () => {
    await pool?.close();
    await server.close();
  });

  it.skipIf(!hasPgBouncer)(
    'is paid for once, whatever dies and breaks, through a pool of transactions',
    { timeout: 120_000 },
    async () => {
      const trial = { rows: 60, runners: 8, concurrency: 10, isPooled: true, every: 17 };
      const fleet = await Fleet.open(trial, server, pool);
      const outcome = await fleet.run();
      expect(outcome.deaths).toBeGreaterThanOrEqual(4);
      expect(outcome).toMatchObject({ paidTwice: [], astray: [] });
      expect(outcome.done).toBeGreaterThan(40);
    },
  );

  it('keeps to one pace, as the gateway counts', { timeout: 60_000 }, async () => {
    const name = await server.database();
    await openDatabase(server.url(name), true);
    const gateway = await startBatchGateway();
    gateway.polls = 3;
    let most = 0;
    gateway.judge = () => {
      most = Math.max(most, gateway.underWay() + 1);
      return undefined;
    };
    const machines = new Machines(gateway.url, server.url(name));
    const [file, other] = [machines.manifest(12), machines.manifest(12, 'other.csv')];
    const pace = ['--concurrency', '3', '--per-minute', '240'];
    const quick = [...machines.output, '--poll-interval', '50ms'];
    await machines.machine().run(['batch', 'enqueue', file, ...pace]);
    const runs = await Promise.all([
      ...[1, 2].map(() => machines.machine().run(['worker', ...quick, '--max-idle', '1s'])),
      ...[1, 2].map(() =>
        machines.machine().run(['batch', 'run', other, '--name', 'clips', ...pace, ...quick]),
      ),
    ]);
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
    const times = gateway.posts().map(({ at }) => at);
    expect(times).toHaveLength(12);
    expect(most).toBeLessThanOrEqual(3);
    // The first may have come late.
    expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(10 * 250);
  });
});
