import { sendOn, type Answer } from '../answer.ts';
import type { GatewayClient } from '../client.ts';
import { openConnections, type Connections } from '../connections.ts';
import { TransportError } from '../transport-error.ts';

/** How one GET is made. */
export interface GetOptions {
  headers: Record<string, string>;
  connectTimeoutMs: number;
  /** Where the gateway is: no address nearer to this machine is connected to (see `isWithinReach`). */
  baseUrl: URL;
  /** Connections to the gateway's origin that are kept from one GET to the next; absent, each has its own. */
  kept?: GatewayClient['kept'] | undefined;
  signal: AbortSignal;
}

/** So much is read at a time, and may wait to be written, bytes. */
const highWaterMark = 1024 * 1024;

// Made once, since a socket that is destroyed has the stack of its error written out.
const ended = new Error('the download has ended');

/** So many results of one gateway come at a time. */
const maxKept = 1024;

/**
 * One GET: the head of the answer, its body still to come. Follows nothing. What comes from the gateway's own origin
 * comes on a connection that is kept, if there are such; all else, and what fails there, on a connection of its own.
 * @throws TransportError if no head came.
 */
export async function get(url: URL, options: GetOptions): Promise<Answer> {
  const { baseUrl, signal, kept } = options;
  if (kept !== undefined && url.origin === baseUrl.origin) {
    const connections = await kept(() => opened(url, options, maxKept));
    try {
      return await asked(url, connections, options);
    } catch (error) {
      const isUnsent = error instanceof TransportError && error.phase === 'unsent';
      if (isUnsent || signal.aborted) throw TransportError.sent(error, url);
      // The other side may have closed it while nothing came on it: that says nothing about the result.
    }
  }
  const own = await opened(url, options, 1);
  const end = (): void => own.destroy(ended);
  try {
    return (await asked(url, own, options)).once('close', end);
  } catch (error) {
    await own.first?.finally(end);
    end();
    throw TransportError.sent(error, url);
  }
}

function opened(
  url: URL,
  { connectTimeoutMs: timeoutMs, baseUrl, signal }: GetOptions,
  most: number,
): Promise<Connections> {
  return openConnections(url, {
    timeoutMs,
    most,
    within: baseUrl,
    // One that is kept is not this GET's alone.
    ...(most === 1 && { signals: [signal] }),
    readsUpTo: highWaterMark,
  });
}

function asked(url: URL, connections: Connections, { headers, signal }: GetOptions): Promise<Answer> {
  const request = { method: 'GET', origin: url.origin, path: `${url.pathname}${url.search}`, headers };
  return sendOn(connections, request, { maxBuffered: highWaterMark, signal });
}
