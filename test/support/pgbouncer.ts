import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { hasPostgres } from './postgres.ts';
import { folderOfServer, freePort, programOf, ServerProcess } from './server-process.ts';

/** Whether PgBouncer and PostgreSQL are installed. Tests that need them are skipped otherwise. */
export const hasPgBouncer = hasPostgres && programOf('pgbouncer') !== undefined;

type PoolMode = 'transaction' | 'statement' | 'session';

/**
 * PgBouncer in front of a PostgreSQL server. Depending on the mode, each transaction or each statement can use a
 * different one of a few server connections.
 */
export class PgBouncer {
  readonly port: number;
  readonly #folder: string;
  readonly #process: ServerProcess;

  private constructor(port: number, folder: string, server: ServerProcess) {
    this.port = port;
    this.#folder = folder;
    this.#process = server;
  }

  /** Starts PgBouncer in front of the server on port `target` of 127.0.0.1. */
  static async open(target: number, mode: PoolMode = 'transaction'): Promise<PgBouncer> {
    const folder = folderOfServer('mgw-pool-');
    const port = await freePort();
    writeFileSync(join(folder, 'users.txt'), '"postgres" ""\n');
    writeFileSync(join(folder, 'pool.ini'), settingsOf(target, port, folder, mode));
    const args = [join(folder, 'pool.ini')];
    const server = await ServerProcess.start(programOf('pgbouncer') ?? '', args, folder, /process up/);
    return new PgBouncer(port, folder, server);
  }

  /** Ends PgBouncer and removes its folder. */
  async close(): Promise<void> {
    await this.#process.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

// In session mode, each session keeps its server connection, so with a smaller pool, one mgw session would wait until
// another session ends.
function settingsOf(target: number, port: number, folder: string, mode: PoolMode): string {
  return `[databases]
* = host=127.0.0.1 port=${target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${join(folder, 'users.txt')}
pool_mode = ${mode}
default_pool_size = ${mode === 'session' ? 4 : 3}
max_client_conn = 400
server_login_retry = 0
`;
}
