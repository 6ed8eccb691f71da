import type { buildConnector } from 'undici';
import connect from 'undici/lib/api/api-connect.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import EnvHttpProxyAgent from 'undici/lib/dispatcher/env-http-proxy-agent.js';

// undici's index adds methods to dispatchers. A proxy agent needs the one that opens a tunnel.
Object.assign(Dispatcher.prototype, { connect });

/**
 * Creates an agent that sends requests through tunnels of a proxy, with the TLS options `secure`, and directly to hosts
 * in NO_PROXY.
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

// undici would omit a user without a password.
function tokenFor({ username, password }: URL): string | undefined {
  if (username === '') return undefined;
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Basic ${Buffer.from(credentials).toString('base64')}`;
}
