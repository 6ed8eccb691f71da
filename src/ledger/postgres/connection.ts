import { readFileSync } from 'node:fs';
import pg from 'pg';
import { messageOf, MgwError } from '../../errors.ts';
import type { StateUrl } from '../../state-url.ts';

/** The code of the error if a server asks for the password in clear on a connection without TLS. */
export const clearPassword = 'MGW_CLEAR_PASSWORD';

/**
 * Returns the TLS options of the connection, or false for none. Without `sslmode` the server's certificate and name are
 * verified, unless the server is on this machine (design 15). NODE_TLS_REJECT_UNAUTHORIZED has no effect.
 * @throws MgwError('config') if a file of certificates cannot be read.
 */
export function tlsOptions(
  { tls, href }: StateUrl,
  defaultHost = process.env['PGHOST'] ?? 'localhost',
): Exclude<pg.ClientConfig['ssl'], boolean | undefined> | false {
  const isVerified = tls.mode === 'verify' || tls.ca !== undefined;
  if (tls.mode === 'disable' || (tls.mode === undefined && !isVerified && isHere(href, defaultHost)))
    return false;
  const [ca, cert, key] = [tls.ca, tls.cert, tls.key].map((path) => path && pem(path));
  return {
    rejectUnauthorized: tls.mode !== 'no-verify',
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key }),
  };
}

function pem(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new MgwError(
      'config',
      `Could not read a certificate of the database's address: ${messageOf(error)}.`,
      {
        cause: error,
      },
    );
  }
}

// The client of the database takes the last one of several parameters, and the parameter before the host of the URL.
function isHere(href: string, defaultHost: string): boolean {
  const url = new URL(href);
  const hosts = url.searchParams.getAll('host');
  const host = hosts.at(-1) || decodeURIComponent(url.hostname) || defaultHost;
  return host.startsWith('/') || /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}

interface Stream {
  destroy(error: Error): void;
}

/** A client that never sends a password in clear over a connection without TLS. */
export class SafeClient extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config);
    const { connection } = this as unknown as { connection: NodeJS.EventEmitter & { stream: Stream } };
    // Listeners run in order: this one ends the connection before the client's own one writes the password.
    connection.on('authenticationCleartextPassword', () => {
      if ('encrypted' in connection.stream) return;
      const text = 'it asks for the password in clear, and the connection has no TLS';
      connection.stream.destroy(Object.assign(new Error(text), { code: clearPassword }));
    });
  }
}

// Without it, an operator or a function that another role made in `public` could be chosen instead of PostgreSQL's own, and
// run as mgw's role. It holds for one transaction, since a pool may give the next one to another connection.
const guard = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";

/**
 * Builds a query that finds functions, operators and types in `pg_catalog` only, whatever the search path of the connection
 * or the role is (design 15). The search path is set in the transaction of the statement, without a round trip of its own.
 * The query has two results; the second is the statement's.
 */
export function guarded(text: string, values: readonly unknown[]): pg.Query {
  // A text without values is one transaction, also if it has several statements.
  if (values.length === 0) return new pg.Query({ text: `${guard};\n${text}` });
  const query = new pg.Query({ text, values: [...values] });
  const submit = query.submit.bind(query);
  query.submit = (connection) => {
    connection.stream.cork();
    try {
      // The transaction ends with the Sync message, which follows the statement.
      connection.parse({ name: '', text: guard, types: [] }, true);
      connection.bind({ portal: '', statement: '', values: [] }, true);
      connection.describe({ type: 'P', name: '' }, true);
      connection.execute({ portal: '', rows: '0' }, true);
      submit(connection);
    } finally {
      connection.stream.uncork();
    }
  };
  return query;
}
