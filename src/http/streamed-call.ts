import type { Deadline } from '../clock.ts';
import type { Exchange, Reply } from '../exchange.ts';
import type { CallOptions, GatewayClient, StreamedReply } from './client.ts';
import { withIdleTimeout } from './deadline.ts';
import { readBounded } from './body.ts';
import { maxRefusalBytes } from './redacting-client.ts';

/** A call whose outcome depends only on the response's head. The body is then read as a stream. */
export class StreamedCall {
  /** The response as a stream, set once a head with status 2xx has arrived. */
  stream: StreamedReply | undefined;
  /** The time at which the call is abandoned. */
  readonly deadline: Deadline;
  readonly #idleMs: number;
  readonly #maxBuffered: number;

  /**
   * @param idleMs the maximum idle time of a refusal's body, in ms
   * @param deadline see {@link StreamedCall.deadline}
   * @param maxBuffered the maximum number of bytes of the stream to buffer
   */
  constructor(idleMs: number, deadline: Deadline, maxBuffered = 4 * 1024 * 1024) {
    this.#idleMs = idleMs;
    this.deadline = deadline;
    this.#maxBuffered = maxBuffered;
  }

  /**
   * Makes the call. Returns only the head of a 2xx response, and any other response in full.
   * @throws TransportError if no head arrived.
   */
  async send(client: GatewayClient, request: Exchange, options: CallOptions): Promise<Reply> {
    const response = await client.stream(request, { ...options, maxBuffered: this.#maxBuffered });
    const { status, headers } = response;
    if (status >= 200 && status < 300) {
      this.stream = response;
      return { status, headers, text: '', complete: false };
    }
    const limits = { idleMs: this.#idleMs, deadline: this.deadline };
    const { bytes, complete } = await readBounded(withIdleTimeout(response.body, limits), maxRefusalBytes);
    response.close();
    return { status, headers, text: new TextDecoder().decode(bytes), complete };
  }
}
