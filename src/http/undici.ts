import buildConnector from 'undici/lib/core/connect.js';
import symbols from 'undici/lib/core/symbols.js';
import Client from 'undici/lib/dispatcher/client.js';
import Pool from 'undici/lib/dispatcher/pool.js';

// Loads only a quarter of undici. Its index would also load proxies, WebSocket, caches and fetch at every start.
export { buildConnector, Client, Pool };

/** The symbol of a connection's response parser. */
export const { kParser } = symbols;

/** The members of the parser that mgw uses. */
export interface Parser {
  /** Resumes reading after a pause. */
  resume(): void;
  /** False if the end of the connection may be the end of the response. */
  shouldKeepAlive: boolean;
}
