import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { hasPgBouncer, PgBouncer } from './pgbouncer.ts';
import { hasPostgres, PostgresServer } from './postgres.ts';
import { programOf } from './server-process.ts';

// The seventh line of postmaster.pid contains the key and the id of the shared memory segment.
function sharedMemoryOf({ folder }: PostgresServer): string {
  const line = readFileSync(join(folder, 'data', 'postmaster.pid'), 'utf8').split('\n')[6] ?? '';
  return line.trim().split(/\s+/)[1] ?? expect.unreachable();
}

describe.skipIf(!hasPostgres)('the PostgreSQL test servers', () => {
  // Runs each statement separately, as a client would.
  async function statements(url: string, all: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(programOf('psql') ?? '', [
      '-XqAt',
      ...all.flatMap((each) => ['-c', each]),
      url,
    ]);
    return stdout.trim();
  }

  it('restart after kill -9, give a PgBouncer client the session of an earlier client, and release their shared memory', async () => {
    const server = await PostgresServer.open();
    const ids = [sharedMemoryOf(server)];
    await server.kill();
    await server.start();
    ids.push(sharedMemoryOf(server));
    if (hasPgBouncer) await expectSessionOfEarlierClient(server);
    await server.close();
    const left = readFileSync('/proc/sysvipc/shm', 'utf8').split('\n');
    expect(left.filter((line) => ids.includes(line.trim().split(/\s+/)[1] ?? ''))).toEqual([]);
  });

  async function expectSessionOfEarlierClient(server: PostgresServer): Promise<void> {
    const pool = await PgBouncer.open(server.port);
    try {
      const url = server.url('postgres', pool.port);
      await statements(url, [`prepare left_behind as select 'mine'`]);
      expect(await statements(url, ['execute left_behind'])).toBe('mine');
    } finally {
      await pool.close();
    }
  }
});
