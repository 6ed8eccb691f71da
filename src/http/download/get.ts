import type { Readable } from 'node:stream';
import requestOn from 'undici/lib/api/api-request.js';
import type { GatewayClient } from '../client.ts';
import { openConnections, type Connections } from '../connections.ts';
import { RawAnswer } from '../raw-answer.ts';
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

/** The head of an answer, and its body still to come: all that came of it, also where it broke off. */
export interface Message extends Readable {
  readonly statusCode: number;
  /** Names in lower case; a repeated header's values joined by `, `. */
  readonly headers: Record<string, string>;
  /** True once the body has ended as its head announced. */
  readonly complete: boolean;
}

/** So much is read at a time, and may wait to be written, bytes. */
const highWaterMark = 1024 * 1024;

// Made once, since a socket that is destroyed has the stack of its error written out.
const ended = new Error('the download has ended');

/** So many results of one gateway come at a time. */
const mostKept = 1024;

/**
 * One GET: the head of the answer, its body still to come. Follows nothing. What comes from the gateway's own origin
 * comes on a connection that is kept, where there are such; all else, and what fails there, on a connection of its own.
 * @throws TransportError where no head came.
 */
export async function get(url: URL, options: GetOptions): Promise<Message> {
  const { baseUrl, signal, kept } = options;
  if (kept !== undefined && url.origin === baseUrl.origin) {
    const connections = await kept(() => opened(url, options, mostKept));
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

async function asked(url: URL, connections: Connections, { headers, signal }: GetOptions): Promise<Message> {
  const raw = new RawAnswer();
  const request = { origin: url.origin, path: `${url.pathname}${url.search}`, headers };
  const { excesses } = connections;
  const dispatcher = raw.through(connections, request);
  const { body } = await requestOn.call(dispatcher, { ...request, method: 'GET', highWaterMark, signal });
  body.on('error', () => undefined);
  return Object.defineProperties(body, {
    statusCode: { value: raw.head?.status },
    headers: { value: raw.head?.headers },
    complete: { get: () => body.readableEnded && !raw.broken && connections.excesses === excesses },
  }) as unknown as Message;
}
