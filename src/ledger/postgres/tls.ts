import pg from 'pg';
import { readFileSync } from 'node:fs';
import { messageOf, MgwError } from '../../errors.ts';
import type { StateUrl } from '../../state-url.ts';

/** The error code for a server that requests the password in clear text on a connection without TLS. */
export const clearPassword = 'MGW_CLEAR_PASSWORD';

/**
 * Returns the connection's TLS options, or false for no TLS. Without `sslmode`, the server's certificate and name are
 * verified, unless the server is on this machine (design 15). NODE_TLS_REJECT_UNAUTHORIZED has no effect.
 * @throws MgwError('config') if a certificate file cannot be read.
 */
export function tlsOptions({
  tls,
  href,
}: StateUrl): Exclude<pg.ClientConfig['ssl'], boolean | undefined> | false {
  if (tls.mode === 'disable' || (tls.mode === undefined && tls.ca === undefined && isLocalServer(href)))
    return false;
  const [ca, cert, key] = [tls.ca, tls.cert, tls.key].map((path) => path && readPem(path));
  return { rejectUnauthorized: tls.mode !== 'no-verify', ca, cert, key };
}

/** Returns a warning if someone on the network could read or change the traffic; otherwise undefined. */
export function tlsWarning(url: StateUrl): string | undefined {
  const tls = tlsOptions(url);
  if ((tls && tls.rejectUnauthorized) || isLocalServer(url.href)) return undefined;
  const problem = tls ? 'not verified (sslmode=no-verify)' : 'not encrypted';
  return `The connection to the database is ${problem}: anyone on the network path can read and change mgw's records.`;
}

function readPem(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new MgwError(
      'config',
      `Could not read a certificate file named in the database's URL: ${messageOf(error)}.`,
      {
        cause: error,
      },
    );
  }
}

// Whether the server is on this machine. As in the pg client, the last of several `host` parameters applies, and it
// overrides the URL's host.
function isLocalServer(href: string): boolean {
  const url = new URL(href);
  const hosts = url.searchParams.getAll('host');
  const host = hosts.at(-1) || decodeURIComponent(url.hostname) || (process.env['PGHOST'] ?? 'localhost');
  return host.startsWith('/') || /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}

/** A client that never sends a password in clear text on a connection without TLS. */
export class SafeClient extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config);
    const { connection } = this as unknown as {
      connection: NodeJS.EventEmitter & { stream: { destroy(error: Error): void } };
    };
    // Listeners run in order. This one closes the connection before the client's own listener writes the password.
    connection.on('authenticationCleartextPassword', () => {
      if ('encrypted' in connection.stream) return;
      const text = 'it requests the password in clear text, but the connection does not use TLS';
      connection.stream.destroy(Object.assign(new Error(text), { code: clearPassword }));
    });
  }
}
