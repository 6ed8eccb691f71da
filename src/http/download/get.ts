import type { Readable } from 'node:stream';
import { openConnections } from '../connections.ts';
import { intoReadBuffers } from '../read-buffers.ts';
import { RawAnswer } from '../raw-answer.ts';
import { TransportError } from '../transport-error.ts';

/** How one GET is made. */
export interface GetOptions {
  headers: Record<string, string>;
  connectTimeoutMs: number;
  /** Where the gateway is: no address nearer to this machine is connected to (see `isWithinReach`). */
  baseUrl: URL;
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

/** So much may wait to be written, bytes. */
const highWaterMark = 1024 * 1024;

/**
 * One GET on a connection of its own: the head of the answer, its body still to come. Follows nothing.
 * @throws TransportError where no head came.
 */
export async function get(url: URL, options: GetOptions): Promise<Message> {
  const { headers, connectTimeoutMs: timeoutMs, baseUrl, signal } = options;
  const connections = await openConnections(url, {
    timeoutMs,
    most: 1,
    within: baseUrl,
    signals: [signal],
    // What TLS gives has been copied already.
    ...(url.protocol === 'http:' && { onread: intoReadBuffers }),
  });
  const raw = new RawAnswer();
  const request = { origin: url.origin, path: `${url.pathname}${url.search}`, headers };
  const end = (): void => connections.destroy(new Error('the download has ended'));
  try {
    const dispatcher = raw.through(connections, request);
    const { body } = await dispatcher.request({ ...request, method: 'GET', highWaterMark, signal });
    body.once('close', end).on('error', () => undefined);
    return Object.defineProperties(body, {
      statusCode: { value: raw.head?.status },
      headers: { value: raw.head?.headers },
      complete: { get: () => body.readableEnded && !raw.broken && !connections.hasExcess },
    }) as unknown as Message;
  } catch (error) {
    await connections.first?.finally(end);
    end();
    throw TransportError.sent(error, url);
  }
}
