import buildConnector from 'undici/lib/core/connect.js';
import Client from 'undici/lib/dispatcher/client.js';
import Pool from 'undici/lib/dispatcher/pool.js';
import WrapHandler from 'undici/lib/handler/wrap-handler.js';

// These are a quarter of undici: its index loads proxies, WebSocket, caches and a fetch of its own as well, at every start.
export { buildConnector, Client, Pool, WrapHandler };
