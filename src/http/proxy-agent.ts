import type { buildConnector } from 'undici';
import connect from 'undici/lib/api/api-connect.js';
import Dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import EnvHttpProxyAgent from 'undici/lib/dispatcher/env-http-proxy-agent.js';

// undici's index lends dispatchers their calls; a proxy agent needs the one that opens a tunnel.
Object.assign(Dispatcher.prototype, { connect });

/** Sends requests by tunnels through a proxy, with TLS as `secure` says; directly to what NO_PROXY names. */
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

// undici would leave out a user without a password.
function tokenFor({ username, password }: URL): string | undefined {
  if (username === '') return undefined;
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Basic ${Buffer.from(credentials).toString('base64')}`;
}
