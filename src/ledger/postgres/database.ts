import pg from 'pg';
import { systemClock, type Clock } from '../../clock.ts';
import { messageOf, MgwError, systemCode } from '../../errors.ts';
import { secretRedactor } from '../../redact.ts';
import type { StateUrl } from '../../state-url.ts';
import { clearPassword, SafeClient, tlsOptions } from './tls.ts';

/** Thrown if the database did not respond in time. The statement may have been executed. */
export class DatabaseLost extends MgwError {}

export type Row = Record<string, unknown>;

/**
 * When a statement returns: after its commit is on disk (`durable`), or possibly before (`soon`). If absent, the
 * database's setting applies.
 */
export type Commit = 'durable' | 'soon';

/** Maximum number of connections per process. A server with default settings can serve 50 processes. */
const maxConnections = 4;
/** How long an unused connection remains open, in ms. */
const idleMs = 5000;

/**
 * The database behind a ledger. Each statement is one transaction, so a connection pooler in transaction mode
 * (PgBouncer) may be in front of the database. If a connection breaks or cannot be made, the statement is sent again on
 * a new connection, until the URL's connect_timeout has passed. So every statement must be repeatable.
 */
export class Database {
  readonly url: StateUrl;
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>;
  readonly #pool: pg.Pool;
  readonly #redact: (text: string) => string;
  #isClosed = false;
  #lastCombined: Promise<unknown> = Promise.resolve();

  constructor(url: StateUrl, clock: Pick<Clock, 'monotonic' | 'sleep'> = systemClock) {
    this.url = url;
    this.#clock = clock;
    this.#redact = secretRedactor([url.password, process.env['PGPASSWORD'] ?? '']);
    this.#pool = new pg.Pool({
      connectionString: url.href,
      // Always set, because otherwise PGSSLMODE would apply.
      ssl: tlsOptions(url),
      Client: SafeClient,
      application_name: 'mgw',
      max: maxConnections,
      connectionTimeoutMillis: url.responseTimeoutMs,
      query_timeout: url.responseTimeoutMs,
      idleTimeoutMillis: idleMs,
      allowExitOnIdle: true,
    });
    // Ignore a broken idle connection: the next statement opens a new connection.
    this.#pool.on('error', () => undefined);
  }

  /** Returns a table's qualified name, which does not depend on the connection's search path. */
  table(name: string): string {
    return `${this.url.schema}.${name}`;
  }

  /**
   * Runs one statement, possibly more than once.
   * @throws DatabaseLost, exit 6, if the database did not respond; MgwError('config') if mgw cannot connect or the
   * database contains no ledger; MgwError('local_io') otherwise.
   */
  async query<T extends Row>(text: string, values: readonly unknown[] = [], commit?: Commit): Promise<T[]> {
    const deadlineMs = this.#clock.monotonic() + this.url.responseTimeoutMs;
    for (let pauseMs = 25; ; pauseMs = Math.min(2 * pauseMs, 1000)) {
      try {
        return await this.#rowsOf<T>(text, values, commit);
      } catch (error) {
        if (!isTemporary(error)) throw this.#errorFor(error);
        if (this.#isClosed || this.#clock.monotonic() + pauseMs > deadlineMs) throw this.#lostError(error);
      }
      await this.#clock.sleep(pauseMs);
    }
  }

  async #rowsOf<T extends Row>(text: string, values: readonly unknown[], commit?: Commit): Promise<T[]> {
    // For a query object, the pool returns a promise of the results, although its types do not declare that.
    const sentQuery: unknown = this.#pool.query(guardedQuery(text, values, commit));
    return ((await sentQuery) as pg.QueryResult<T>[]).at(-1)?.rows ?? [];
  }

  /**
   * Returns a function that combines all calls made while another `load` runs into one `load`, so that many rows in
   * progress need few statements. If the combined `load` fails, `load` runs once for each call, so that one call does
   * not fail because of another. `load` must not wait for another combined call. A call for a key without a result
   * returns undefined.
   */
  combine<K, V>(load: (keys: K[]) => Promise<Map<K, V>>): (key: K) => Promise<V | undefined> {
    let pendingKeys: K[] = [];
    let pendingAnswers: Promise<Map<K, () => V | undefined>> | undefined;
    const runNext = async (): Promise<Map<K, () => V | undefined>> => {
      // Wait a tick, so that this `load` includes calls made in response to the previous results.
      await new Promise((resolve) => process.nextTick(resolve));
      const keys = pendingKeys;
      pendingKeys = [];
      pendingAnswers = undefined;
      return loadAll(keys, load);
    };
    return async (key) => {
      pendingKeys.push(key);
      pendingAnswers ??= this.#lastCombined.then(runNext);
      this.#lastCombined = pendingAnswers.catch(() => undefined);
      return (await pendingAnswers).get(key)?.();
    };
  }

  /**
   * Whether transactions of several statements work. mgw uses no such transactions; this checks the pooler in front of
   * the database.
   */
  async supportsTransactions(): Promise<boolean> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw isTemporary(error) ? this.#lostError(error) : this.#errorFor(error);
    });
    try {
      await client.query('BEGIN');
      await client.query('ROLLBACK');
      client.release();
      return true;
    } catch {
      client.release(true);
      // This query throws if the database is unreachable. If it succeeds, transactions are not supported.
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

  #lostError(error: unknown): DatabaseLost {
    const text = `The ledger on ${this.url.displayUrl} does not respond: ${this.#redact(shortMessage(error))}.`;
    return new DatabaseLost('unreachable', text, { retry: 'safe', cause: error });
  }

  #errorFor(error: unknown): MgwError {
    const { displayUrl, schema } = this.url;
    const code = systemCode(error) ?? '';
    const reason = this.#redact(shortMessage(error));
    if (missingCodes.has(code))
      return new MgwError(
        'config',
        `There is no ledger in the schema ${schema} of ${displayUrl}: ${reason}.`,
        {
          next: ['mgw', 'state', 'init'],
          cause: error,
        },
      );
    const isPasswordMissing = missingPasswordPattern.test(messageOf(error));
    if (code === '28P01' || isPasswordMissing)
      return new MgwError(
        'config',
        `The database ${displayUrl} requires a password${isPasswordMissing ? ', but none was set' : `: ${reason}`}. Set PGPASSWORD to the password of the role.`,
        { cause: error },
      );
    if (
      /^(28|3D|42501|0A)/.test(code) ||
      code === clearPassword ||
      certificateCodes.test(code) ||
      noTlsPattern.test(reason)
    )
      return new MgwError('config', `mgw cannot use the database ${displayUrl}: ${reason}.`, {
        cause: error,
      });
    return new MgwError('local_io', `The ledger on ${displayUrl} cannot be used: ${reason}.`, {
      retry: 'safe',
      cause: error,
    });
  }
}

async function loadAll<K, V>(
  keys: K[],
  load: (keys: K[]) => Promise<Map<K, V>>,
): Promise<Map<K, () => V | undefined>> {
  try {
    const values = await load(keys);
    return new Map(keys.map((key) => [key, () => values.get(key)]));
  } catch (error) {
    if (error instanceof DatabaseLost || keys.length === 1) throw error;
  }
  const results = new Map<K, () => V | undefined>();
  for (const key of keys) {
    const result = await load([key]).then(
      (values) => () => values.get(key),
      (error: unknown) => () => {
        throw error;
      },
    );
    results.set(key, result);
  }
  return results;
}

// Error codes for a missing table, schema or column.
const missingCodes = new Set(['42P01', '3F000', '42703']);
const certificateCodes = /CERT|SELF_SIGNED|UNABLE_TO_/;
// These errors of the pg client have no code.
const missingPasswordPattern = /client password must be/;
const noTlsPattern = /does not support SSL/;

/**
 * Whether PostgreSQL refused a row because its key exists. Also recognizes the errors that {@link Database.query}
 * throws.
 */
export function isDuplicate(error: unknown): boolean {
  return systemCode(error) === '23505';
}

const temporaryServerCodes =
  // Error codes for a broken connection, too many connections, a server that is starting or stopping, or conflicting
  // transactions.
  /^(08|57P0[1-5]|53|40001|40P01|25006)/;
const temporarySocketCodes = /^(E(CONN|HOST|NET|PIPE|TIMEDOUT|AI_AGAIN)|ENOTFOUND)/;

// Whether an error is temporary. pg's own errors about a broken connection have no code.
function isTemporary(error: unknown): boolean {
  const code = systemCode(error);
  if (code !== undefined) return temporaryServerCodes.test(code) || temporarySocketCodes.test(code);
  return /terminated|timeout|closed|not queryable|server (closed|conn)|ended|error establishing an SSL/i.test(
    messageOf(error),
  );
}

function shortMessage(error: unknown): string {
  const innerError: unknown = error instanceof AggregateError ? (error.errors[0] ?? error) : error;
  return (messageOf(innerError) || systemCode(error) || 'no reason was given')
    .replace(/\.$/, '')
    .slice(0, 300);
}

// Returns a statement that sets the search path. Without the search path, PostgreSQL could use an operator or function
// that another role created in `public`. The setting lasts for one transaction, because a pooler may run the next
// transaction on a different connection. OFFSET 1 returns no row, to save time.
function guardOf(commit?: Commit): string {
  const path = "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true) AS path";
  if (commit === undefined) return `SELECT FROM ${path} OFFSET 1`;
  // Keeps a stricter `synchronous_commit` setting of the database. Avoids SQL operators, because a different role could
  // have redefined them.
  const mode =
    commit === 'soon'
      ? "'off'"
      : "pg_catalog.regexp_replace(pg_catalog.current_setting('synchronous_commit'), '^(off|local)$', 'on')";
  return `SELECT FROM ${path}, pg_catalog.set_config('synchronous_commit', ${mode}, true) AS commit OFFSET 1`;
}

/**
 * Builds a query that finds functions, operators and types only in `pg_catalog`, regardless of the search path of the
 * connection or role (design 15). The search path is set in the same transaction, without another round trip. The query
 * has two results; the second is the statement's result.
 */
function guardedQuery(text: string, values: readonly unknown[], commit?: Commit): pg.Query {
  const guard = guardOf(commit);
  // A query without values is one transaction, even if it has several statements.
  if (values.length === 0) return new pg.Query({ text: `${guard};\n${text}` });
  const query = new pg.Query({ text, values: [...values] });
  const submit = query.submit.bind(query);
  query.submit = (connection) => {
    connection.stream.cork();
    try {
      // The transaction ends with the Sync message, which follows the statement.
      connection.parse({ name: '', text: guard, types: [] }, true);
      connection.bind({ portal: '', statement: '', values: [] }, true);
      connection.execute({ portal: '', rows: '0' }, true);
      submit(connection);
    } finally {
      connection.stream.uncork();
    }
  };
  return query;
}
