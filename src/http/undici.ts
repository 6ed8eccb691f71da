import connect from 'undici/lib/api/api-connect.js';
import request from 'undici/lib/api/api-request.js';
import buildConnector from 'undici/lib/core/connect.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import EnvHttpProxyAgent from 'undici/lib/dispatcher/env-http-proxy-agent.js';
import Pool from 'undici/lib/dispatcher/pool.js';

// These are a third of undici: its index loads WebSocket, caches and a fetch of its own as well, at every start. What
// the index does otherwise is to lend dispatchers their calls; a proxy agent needs the one that opens a tunnel.
Object.assign(Dispatcher.prototype, { connect, request });

export { buildConnector, EnvHttpProxyAgent, Pool };
