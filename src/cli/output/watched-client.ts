import type { GatewayClient } from '../../http/client.ts';
import type { Progress } from './progress.ts';

/** A client of which each call is shown as long as its answer, or the head of it, is outstanding. */
export function watchedClient(client: GatewayClient, { calling }: Pick<Progress, 'calling'>): GatewayClient {
  const { host } = client.baseUrl;
  const during = async <T>(isPaid: boolean, call: () => Promise<T>): Promise<T> => {
    const end = calling(`${isPaid ? 'submitting to' : 'asking'} ${host}`);
    try {
      return await call();
    } finally {
      end();
    }
  };
  return {
    ...client,
    // Only what pays is told when its connection stands.
    exchange: (request, options) =>
      during(options.onConnected !== undefined, () => client.exchange(request, options)),
    stream: (request, options) =>
      during(options.onConnected !== undefined, () => client.stream(request, options)),
  };
}
