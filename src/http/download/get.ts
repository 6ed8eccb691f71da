import { request as openRequest, type IncomingMessage } from 'node:http';
import { connect } from '../connect.ts';
import { TransportError } from '../transport-error.ts';

/** How one GET is made. */
export interface GetOptions {
  headers: Record<string, string>;
  connectTimeoutMs: number;
  /** True refuses private addresses, also behind DNS. */
  publicOnly: boolean;
  signal: AbortSignal;
}

/**
 * One GET on a connection of its own: the head of the answer, its body still to come. Follows nothing.
 * @throws TransportError where no head came.
 */
export async function get(url: URL, options: GetOptions): Promise<IncomingMessage> {
  const { headers, connectTimeoutMs, publicOnly, signal } = options;
  const socket = await connect(url, { timeoutMs: connectTimeoutMs, publicOnly, signal });
  const request = openRequest({
    method: 'GET',
    path: `${url.pathname}${url.search}`,
    headers: { host: url.host, ...headers },
    maxHeaderSize: 64 * 1024,
    insecureHTTPParser: false,
    createConnection: () => socket,
    signal,
  });
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      socket.destroy();
      reject(TransportError.sent(error, url));
    };
    request.once('error', fail);
    request.once('response', (message) => {
      // Bytes behind the announced end come as an error of the request.
      request.off('error', fail).on('error', (error) => message.destroy(error));
      resolve(message);
    });
    request.end();
  });
}
