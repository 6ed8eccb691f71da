import buildConnector from 'undici/lib/core/connect.js';
import symbols from 'undici/lib/core/symbols.js';
import Client from 'undici/lib/dispatcher/client.js';
import Pool from 'undici/lib/dispatcher/pool.js';

// These are a quarter of undici: its index loads proxies, WebSocket, caches and a fetch of its own as well, at every start.
export { buildConnector, Client, Pool };

/** The member of a connection that is the parser of its answers. */
export const { kParser } = symbols;

/** What of that parser is of use here. */
export interface Parser {
  /** Resumes reading after a pause. */
  resume(): void;
  /** False if the connection's end may be the answer's. */
  shouldKeepAlive: boolean;
}
