import pg from 'pg';
import { systemClock, type Clock } from '../../clock.ts';
import { messageOf, MgwError, systemCode } from '../../errors.ts';
import { secretRedactor } from '../../redact.ts';
import type { StateUrl } from '../../state-url.ts';
import { clearPassword, guarded, SafeClient, tlsOptions } from './connection.ts';

/** The database did not respond in time: the statement may have run or not. */
export class DatabaseGone extends MgwError {}

/** A row of a result, not checked yet. */
export type Row = Record<string, unknown>;

/** The maximum number of connections of one process: fifty processes fit a server with its default settings. */
const maxConnections = 4;
/** An unused connection is closed after this time, ms. */
const idleMs = 5000;

/**
 * The database behind a ledger. Every statement is one transaction by itself, so that a transaction pool may
 * be in front of it (PgBouncer). Every statement is written so that it may be repeated. If a connection breaks, or
 * none can be made, it is repeated on another one, for as long as the patience lasts.
 */
export class Database {
  readonly url: StateUrl;
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>;
  readonly #pool: pg.Pool;
  readonly #redact: (text: string) => string;
  #isClosed = false;

  constructor(url: StateUrl, clock: Pick<Clock, 'monotonic' | 'sleep'> = systemClock) {
    this.url = url;
    this.#clock = clock;
    this.#redact = secretRedactor([url.password, process.env['PGPASSWORD'] ?? '']);
    this.#pool = new pg.Pool({
      connectionString: url.href,
      // Given in any case: without it, PGSSLMODE would decide.
      ssl: tlsOptions(url),
      Client: SafeClient,
      application_name: 'mgw',
      max: maxConnections,
      connectionTimeoutMillis: url.patienceMs,
      query_timeout: url.patienceMs,
      idleTimeoutMillis: idleMs,
      allowExitOnIdle: true,
      keepAlive: true,
    });
    // Of an idle connection: the next statement opens another.
    this.#pool.on('error', () => undefined);
  }

  /** A table's full name: no connection's search path is relied on. */
  table(name: string): string {
    return `${this.url.schema}.${name}`;
  }

  /**
   * Runs one statement; it may be done twice.
   * @throws DatabaseGone, exit 6, if the database did not respond; MgwError('config') if the database refuses mgw, or has no
   * ledger in it; MgwError('local_io') otherwise.
   */
  async query<T extends Row>(text: string, values: readonly unknown[] = []): Promise<T[]> {
    const end = this.#clock.monotonic() + this.url.patienceMs;
    for (let pauseMs = 25; ; pauseMs = Math.min(2 * pauseMs, 1000)) {
      try {
        return await this.#rowsOf<T>(text, values);
      } catch (error) {
        if (!isGone(error)) throw this.#refused(error);
        if (this.#isClosed || this.#clock.monotonic() + pauseMs > end) throw this.#gone(error);
      }
      await this.#clock.sleep(pauseMs);
    }
  }

  async #rowsOf<T extends Row>(text: string, values: readonly unknown[]): Promise<T[]> {
    // Given a query object, the pool returns a promise of its results, which its types do not say.
    const sent: unknown = this.#pool.query(guarded(text, values));
    return ((await sent) as pg.QueryResult<T>[]).at(-1)?.rows ?? [];
  }

  /**
   * Whether a transaction of several statements can be made; mgw makes none, and checks what is in front of the database.
   * @throws as {@link query} does.
   */
  async knowsTransactions(): Promise<boolean> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw isGone(error) ? this.#gone(error) : this.#refused(error);
    });
    try {
      await client.query('BEGIN');
      await client.query('ROLLBACK');
      client.release();
      return true;
    } catch {
      client.release(true);
      // Reports that the database is unreachable.
      await this.query('SELECT');
      return false;
    }
  }

  /** Closes all connections after their statements have ended. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#pool.end();
  }

  #gone(error: unknown): DatabaseGone {
    const text = `The ledger on ${this.url.shown} does not answer: ${this.#redact(wordsOf(error))}.`;
    return new DatabaseGone('unreachable', text, { retry: 'safe', cause: error });
  }

  #refused(error: unknown): MgwError {
    const { shown, schema } = this.url;
    const code = systemCode(error) ?? '';
    const why = this.#redact(wordsOf(error));
    if (missing.has(code))
      return new MgwError('config', `There is no ledger in the schema ${schema} of ${shown} yet: ${why}.`, {
        next: ['mgw', 'state', 'init'],
        cause: error,
      });
    if (code === '28P01' || noPassword.test(messageOf(error)))
      return new MgwError(
        'config',
        `The database ${shown} requires a password: ${why}. Set PGPASSWORD to the password of the role.`,
        { cause: error },
      );
    if (/^(28|3D|42501|0A)/.test(code) || code === clearPassword || certificate.test(code) || noTls.test(why))
      return new MgwError('config', `The database ${shown} refuses mgw: ${why}.`, { cause: error });
    return new MgwError('local_io', `The ledger on ${shown} cannot be used: ${why}.`, {
      retry: 'safe',
      cause: error,
    });
  }
}

// A table, a schema or a column that is not there.
const missing = new Set(['42P01', '3F000', '42703']);
const certificate = /CERT|SELF_SIGNED|UNABLE_TO_/;
// The client of the database gives these errors no code.
const noPassword = /client password must be/;
const noTls = /does not support SSL/;

/** Whether PostgreSQL refused a row because its key exists. `error` may be what {@link Database.query} threw. */
export function isDuplicate(error: unknown): boolean {
  return systemCode(error instanceof MgwError ? error.cause : error) === '23505';
}

const serverCodes =
  // Connections: broken, too many, the server starting or ending; two transactions in each other's way.
  /^(08|57P0[1-5]|53|40001|40P01|25006)/;
const socketCodes = /^(E(CONN|HOST|NET|PIPE|TIMEDOUT|AI_AGAIN)|ENOTFOUND)/;

// Errors that may pass. pg's own errors about a broken connection have no code.
function isGone(error: unknown): boolean {
  const code = systemCode(error);
  if (code !== undefined) return serverCodes.test(code) || socketCodes.test(code);
  return /terminated|timeout|closed|not queryable|server (closed|conn)|ended/i.test(messageOf(error));
}

function wordsOf(error: unknown): string {
  const inner: unknown = error instanceof AggregateError ? (error.errors[0] ?? error) : error;
  return (messageOf(inner) || systemCode(error) || 'no reason given').replace(/\.$/, '').slice(0, 300);
}
