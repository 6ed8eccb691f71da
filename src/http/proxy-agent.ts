import type { buildConnector } from 'undici';
import connect from 'undici/lib/api/api-connect.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import EnvHttpProxyAgent from 'undici/lib/dispatcher/env-http-proxy-agent.js';

// undici's index, which mgw does not load, adds methods to dispatchers. A proxy agent needs `connect` to open a tunnel.
Object.assign(Dispatcher.prototype, { connect });

/**
 * Creates an agent that sends requests through a proxy's tunnels, with the TLS options `secure`. Requests to hosts in
 * NO_PROXY are sent directly.
 */
export function proxyAgent(
  proxy: string,
  secure: buildConnector.BuildOptions,
  options: EnvHttpProxyAgent.Options,
): EnvHttpProxyAgent {
  return new EnvHttpProxyAgent({
    ...options,
    httpProxy: proxy,
    httpsProxy: proxy,
    token: tokenFor(new URL(proxy)),
    requestTls: secure,
    proxyTls: secure,
  });
}

// Returns the credentials for the proxy. undici would omit a user name without a password.
function tokenFor({ username, password }: URL): string | undefined {
  if (username === '') return undefined;
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Basic ${Buffer.from(credentials).toString('base64')}`;
}
