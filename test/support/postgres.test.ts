import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CuttingProxy, type Cut } from './cutting-proxy.ts';
import { hasPgBouncer, PgBouncer } from './pgbouncer.ts';
import { hasPostgres, PostgresServer } from './postgres.ts';
import { programOf } from './server-process.ts';

// The seventh line of postmaster.pid contains the key and the id of the shared memory segment.
function sharedMemoryOf({ folder }: PostgresServer): string {
  const line = readFileSync(join(folder, 'data', 'postmaster.pid'), 'utf8').split('\n')[6] ?? '';
  return line.trim().split(/\s+/)[1] ?? expect.unreachable();
}

describe.skipIf(!hasPostgres)('the PostgreSQL test servers', () => {
  let server: PostgresServer;
  beforeAll(async () => (server = await PostgresServer.open()));
  afterAll(() => server.close());

  async function tableIn(database: string): Promise<void> {
    await server.query('create table kept (what text)', database);
  }

  // Runs each statement separately, as a client would.
  async function statements(url: string, all: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(programOf('psql') ?? '', [
      '-XqAt',
      ...all.flatMap((each) => ['-c', each]),
      url,
    ]);
    return stdout.trim();
  }

  it('keep committed data even if every server process is killed', async () => {
    const database = await server.database();
    await tableIn(database);
    await server.query(insertion, database);
    await server.kill();
    await expect(server.query('select 1', database)).rejects.toThrow(/ECONNREFUSED/);
    await server.start();
    expect(await server.query('select what from kept', database)).toBe('a');
  });

  it('release their shared memory, even after kill -9', async () => {
    const other = await PostgresServer.open();
    const ids = [sharedMemoryOf(other)];
    await other.kill();
    await other.start();
    ids.push(sharedMemoryOf(other));
    await other.close();
    const left = readFileSync('/proc/sysvipc/shm', 'utf8').split('\n');
    expect(left.filter((line) => ids.includes(line.trim().split(/\s+/)[1] ?? ''))).toEqual([]);
  });

  const insertion = `insert into kept values ('a')`;
  const cuts: [string, Cut, string][] = [
    ['a disconnection that loses a statement', { at: /^insert/, lose: 'message' }, ''],
    ['a disconnection that loses a response', { at: /^insert/, lose: 'answer' }, 'a'],
  ];
  it.each(cuts)('accept new connections after %s', async (_, cut, kept) => {
    const database = await server.database();
    await tableIn(database);
    const proxy = await CuttingProxy.open(server.port);
    const url = server.url(database, proxy.port);
    const isCut = proxy.cutAt(cut);
    await expect(statements(url, [insertion])).rejects.toThrow(/closed|reset|terminated/i);
    await isCut;
    expect(await server.query('select what from kept', database)).toBe(kept);
    expect(await statements(url, ['select 1'])).toBe('1');
  });

  it('become unreachable, and reachable again, on request', async () => {
    const proxy = await CuttingProxy.open(server.port);
    const url = server.url('postgres', proxy.port);
    proxy.down();
    await expect(statements(url, ['select 1'])).rejects.toThrow(/closed|reset|terminated/i);
    proxy.up();
    expect(await statements(url, ['select 1'])).toBe('1');
  });

  it.skipIf(!hasPgBouncer)('give a PgBouncer client the session of an earlier client', async () => {
    const pool = await PgBouncer.open(server.port);
    try {
      const url = server.url('postgres', pool.port);
      await statements(url, [`prepare left_behind as select 'mine'`]);
      expect(await statements(url, ['execute left_behind'])).toBe('mine');
    } finally {
      await pool.close();
    }
  });
});
