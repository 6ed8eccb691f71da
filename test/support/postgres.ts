import { rmSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { onEnd } from './clean-ups.ts';
import { onceForSuite } from './once-for-suite.ts';
import {
  folderOfServer,
  freePort,
  ownByServer,
  programOf,
  runAsServer,
  ServerProcess,
} from './server-process.ts';

/** Whether PostgreSQL is installed on Linux. Tests that need it are skipped otherwise. */
export const hasPostgres = programOf('initdb') !== undefined && process.platform === 'linux';

// With fsync off, committed data is in the system's cache, so it survives a kill -9 of the server.
const settings = ['fsync=off', 'shared_buffers=16MB', 'max_connections=120', 'listen_addresses=127.0.0.1'];

// Emptying a database takes a quarter of the time of dropping it and creating another one.
const emptyDatabase = `
  select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
  do $$ declare name text; begin
    for name in select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' loop
      execute format('drop schema %I cascade', name);
    end loop;
    execute format('alter database %I reset all', current_database());
  end $$;
  create schema public; grant usage on schema public to public`;

// Copies a cluster for each server, because running initdb takes twenty times as long.
async function newCluster(folder: string): Promise<void> {
  ownByServer(folder);
  const format = ['--encoding=UTF8', '--locale=C', '--wal-segsize=1'];
  const args = ['--no-sync', '--auth=trust', '--username=postgres', ...format];
  await runAsServer(programOf('initdb') ?? '', [...args, '-D', join(folder, 'data')], folder);
}

/**
 * A PostgreSQL server with its own folder, run by an ordinary user. It listens on 127.0.0.1 and on a socket in the
 * folder. The tests in a file share one server (`beforeAll`, `afterAll`), but each test has its own database.
 */
export class PostgresServer {
  readonly port: number;
  readonly folder: string;
  #process: ServerProcess | undefined;
  #databases = 0;
  readonly #emptyDatabases: string[] = [];

  private constructor(port: number, folder: string) {
    this.port = port;
    this.folder = folder;
  }

  /** Creates and starts a server. */
  static async open(): Promise<PostgresServer> {
    const folder = folderOfServer('mgw-pg-');
    const cluster = join(await onceForSuite('mgw-pg-new', newCluster), 'data');
    await runAsServer('cp', ['-a', cluster, join(folder, 'data')], folder);
    const server = new PostgresServer(await freePort(), folder);
    await server.start();
    return server;
  }

  /** Returns a database's address. `port` may belong to a proxy or pool in front of the server. */
  url(database: string, port = this.port): string {
    return `postgres://postgres@127.0.0.1:${port}/${database}`;
  }

  /** Returns the name of an empty database. After the test, it is emptied for the next test. */
  async database(): Promise<string> {
    const name = this.#emptyDatabases.pop() ?? (await this.#createDatabase());
    onEnd(async () => {
      if (this.#process === undefined) return;
      await this.query(emptyDatabase, name);
      this.#emptyDatabases.push(name);
    });
    return name;
  }

  async #createDatabase(): Promise<string> {
    const name = `test_${(this.#databases += 1)}`;
    await this.query(`create database ${name}`);
    return name;
  }

  /**
   * Runs statements and returns the rows as lines, with tabs between fields.
   * @throws Error with the server's message.
   */
  async query(statements: string, database = 'postgres'): Promise<string> {
    const client = new pg.Client({
      connectionString: this.url(database),
      types: { getTypeParser: () => String },
    });
    // The call that is in progress reports the end of the connection.
    client.on('error', () => undefined);
    try {
      await client.connect();
      const results = [await client.query<string[]>({ text: statements, rowMode: 'array' })].flat();
      return results.flatMap(({ rows }) => rows.map((row) => row.join('\t'))).join('\n');
    } finally {
      await client.end();
    }
  }

  /** Starts the server after {@link kill}. Resolves when it accepts connections. */
  async start(): Promise<void> {
    const args = ['-D', join(this.folder, 'data'), '-p', String(this.port), '-k', this.folder];
    const all = [...args, ...settings.flatMap((each) => ['-c', each])];
    const ready = /database system is ready to accept connections/;
    for (;;) {
      try {
        this.#process = await ServerProcess.start(programOf('postgres') ?? '', all, this.folder, ready);
        return;
      } catch (error) {
        // Some processes of the killed server may not have exited.
        if (!/still in use/.test(String(error))) throw error;
      }
    }
  }

  /** Ends every server process with SIGKILL. */
  async kill(): Promise<void> {
    await this.#process?.kill();
    this.#process = undefined;
  }

  /**
   * Ends the server and removes its folder. A killed server must be started first; otherwise, its shared memory would
   * remain.
   */
  async close(): Promise<void> {
    await this.#process?.end();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
