import nock from 'nock';
import { createClient, type ClientOptions, type GatewayClient } from '../../src/http/client.ts';
import { onEnd } from './clean-ups.ts';

// Once loaded, nock intercepts every request, but other files of this process use real sockets.
nock.restore();

/** The key that the client of {@link nockGateway} sends. */
export const nockKey = 'sk-canary-1c7a9e0b3d5f2486';

/**
 * A gateway that responds without a socket, for tests that concern only the response. A prepared response that is not
 * requested fails the test. A request without a prepared response fails.
 */
export function nockGateway(options: Partial<ClientOptions> = {}): {
  gateway: nock.Scope;
  client: GatewayClient;
} {
  const baseUrl = new URL('https://gateway.example');
  const client = createClient({ baseUrl, key: nockKey, userAgent: 'mgw/test', ...options });
  if (!nock.isActive()) nock.activate();
  nock.disableNetConnect();
  onEnd(() => {
    client.close();
    const unasked = nock.pendingMocks();
    nock.cleanAll();
    nock.enableNetConnect();
    nock.restore();
    if (unasked.length > 0) throw new Error(`no test asked for ${unasked.join(', ')}`);
  });
  return { gateway: nock(baseUrl.origin), client };
}
