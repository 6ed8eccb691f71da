import buildConnector from 'undici/lib/core/connect.js';
import symbols from 'undici/lib/core/symbols.js';
import Client from 'undici/lib/dispatcher/client.js';
import Pool from 'undici/lib/dispatcher/pool.js';

// Loads only the part of undici that mgw needs, about a quarter of it. undici's index would also load proxies,
// WebSocket, caches and fetch at every start.
export { buildConnector, Client, Pool };

/** The symbol of the property that holds a connection's response parser. */
export const { kParser } = symbols;

/** The members of undici's response parser that mgw uses. */
export interface Parser {
  /** Resumes reading after a pause. */
  resume(): void;
  /** False if the connection's end may mark the response's end. */
  shouldKeepAlive: boolean;
}
