import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway, type BatchGateway } from '../gateway.ts';
import { openDatabase } from './database.ts';
import { Machines, read } from './machines.ts';

describe.skipIf(!hasPostgres).each([
  { way: 'directly', isPooled: false },
  { way: 'through a pool of transactions', isPooled: true },
])('a commit whose outcome is lost, $way', ({ isPooled }) => {
  let server: PostgresServer;
  let pool: PgBouncer | undefined;
  let name: string;
  let gateway: BatchGateway;
  let proxy: CuttingProxy;
  let machines: Machines;
  let file: string;
  beforeAll(async () => {
    server = await PostgresServer.open();
    pool = isPooled && hasPgBouncer ? await PgBouncer.open(server.port) : undefined;
  });
  afterAll(async () => {
    await pool?.close();
    await server.close();
  });
  beforeEach(async () => {
    name = await server.database();
    await openDatabase(server.url(name), true);
    gateway = await startBatchGateway();
    proxy = await CuttingProxy.open(pool?.port ?? server.port);
    machines = new Machines(gateway.url, `${server.url(name, proxy.port)}?lease=2s&connect_timeout=1`);
    file = machines.manifest(1);
  });

  function args(): string[] {
    return ['batch', 'run', file, ...machines.output, '--poll-interval', '10ms'];
  }

  function goneAfter(pattern: RegExp): void {
    void proxy.cutAt({ at: pattern, lose: 'answer' }).then(() => proxy.down());
  }

  it('before "sending": nothing is sent, and the next run sends once', async () => {
    goneAfter(/"type":"sending"/);
    const first = await read(machines.machine(), ...args());
    expect(gateway.posts()).toHaveLength(0);
    expect(first.code).not.toBe(0);
    proxy.up();
    await expect
      .poll(() => server.query('select count(*) from mgw.leases where until > now()', name), {
        timeout: 8000,
      })
      .toBe('0');
    await machines.machine().run(args());
    expect(gateway.posts().length).toBeLessThanOrEqual(1);
    expect(gateway.charges.get('prompt 0') ?? 0).toBeLessThanOrEqual(1);
  });

  it('of "sending" for a moment: it is asked again, and sent once', async () => {
    const isCut = proxy.cutAt({ at: /"type":"sending"/, lose: 'answer' });
    const { code } = await read(machines.machine(), ...args());
    await isCut;
    expect([code, gateway.charges.get('prompt 0')]).toEqual([0, 1]);
  });

  it('after the acceptance: the handle is told and kept, and written at the next contact', async () => {
    goneAfter(/"type":"reply"/);
    const machine = machines.machine();
    const first = await machine.run(args());
    expect(gateway.charges.get('prompt 0')).toBe(1);
    expect(first.stderr).toContain('accepted the task as task-1');
    proxy.up();
    const second = await machine.run(args());
    expect([second.code, gateway.charges.get('prompt 0')]).toEqual([0, 1]);
  });
});
