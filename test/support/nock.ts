import nock from 'nock';
import { createClient, type ClientOptions, type GatewayClient } from '../../src/http/client.ts';
import { onEnd } from './clean-ups.ts';

// Importing nock makes it intercept every request, but other test files in this process use real sockets.
nock.restore();

/** The key that the client of {@link nockGateway} sends. */
export const nockKey = 'sk-canary-1c7a9e0b3d5f2486';

/**
 * Returns a gateway that responds without a socket, for tests that concern only responses. The test fails if a prepared
 * response is not requested. A request without a prepared response fails.
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
    if (unasked.length > 0) throw new Error(`no test expects ${unasked.join(', ')}`);
  });
  return { gateway: nock(baseUrl.origin), client };
}
