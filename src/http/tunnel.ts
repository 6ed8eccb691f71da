import { request as httpRequest, type ClientRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';

/**
 * Opens a tunnel to a host through a proxy of the environment, by `CONNECT`.
 * @param proxy its address, with credentials where it wants some
 * @param target host and port, IPv6 in brackets
 * @throws Error where the proxy cannot be reached or refuses; no byte went to the target.
 */
export async function openTunnel(proxy: URL, target: string, signal: AbortSignal): Promise<Socket> {
  const isTls = proxy.protocol === 'https:';
  if (!isTls && proxy.protocol !== 'http:')
    throw new Error(`the proxy ${proxy.protocol}//${proxy.host} is of a kind that is not supported`);
  const credentials = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  const request = (isTls ? httpsRequest : httpRequest)({
    host: proxy.hostname.replace(/^\[|\]$/g, ''),
    port: Number(proxy.port) || (isTls ? 443 : 80),
    method: 'CONNECT',
    path: target,
    agent: false,
    signal,
    // In so many words, so that NODE_TLS_REJECT_UNAUTHORIZED cannot turn it off.
    rejectUnauthorized: true,
    headers: {
      host: target,
      ...(proxy.username && {
        'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}`,
      }),
    },
  });
  return tunnelled(request, proxy);
}

function tunnelled(request: ClientRequest, proxy: URL): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const refuse = (status: number | undefined): void =>
      reject(new Error(`the proxy ${proxy.host} refused the tunnel with HTTP ${status ?? 'nothing'}`));
    request.once('error', reject);
    request.once('response', (response) => {
      response.destroy();
      refuse(response.statusCode);
    });
    request.once('connect', (response, socket) => {
      // Until somebody takes the socket over, its errors show only as `destroyed`.
      socket.on('error', () => undefined);
      if (response.statusCode === 200) {
        resolve(socket);
        return;
      }
      socket.destroy();
      refuse(response.statusCode);
    });
    request.end();
  });
}
