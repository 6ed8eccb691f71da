import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Connections } from './connections.ts';

type Controller = Dispatcher.DispatchController;
type Headers = Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>[2];

/** A request as it is sent. Only headers that HTTP/1.1 requires are added to it. */
export interface WireRequest {
  method: string;
  origin: string;
  /** The path and query, percent-encoded. */
  path: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
}

/** Options for sending one request. */
export interface SendOptions {
  /** The maximum number of body bytes to buffer before the connection pauses. */
  maxBuffered: number;
  /** Ends the call. If it aborts before the first byte, nothing is sent. */
  signal: AbortSignal;
  /** Runs immediately before the first byte of the request. If it throws, nothing is sent. */
  beforeFirstByte?: () => void;
}

/**
 * The head of a response, and its body as a stream of the bytes on the wire. The stream ends without an error even if
 * the body is cut off, so that a reader receives every byte that arrived. `broken` and `complete` show how it ended.
 */
export class WireResponse extends Readable {
  /** Why the body is incomplete; set when the body ends. */
  broken: Error | undefined;
  readonly #controller: Controller;
  readonly #hasExcess: () => boolean;
  readonly #contentLength: number | undefined;
  #received = 0;
  #isEnded = false;

  constructor(
    readonly statusCode: number,
    /** The headers. Names are in lower case, and the values of a repeated header are joined by `, `. */
    readonly headers: Record<string, string>,
    controller: Controller,
    { maxBuffered, hasExcess }: { maxBuffered: number; hasExcess: () => boolean },
  ) {
    super({ highWaterMark: maxBuffered });
    this.#controller = controller;
    this.#hasExcess = hasExcess;
    this.#contentLength = contentLengthOf(headers);
  }

  /** Whether the whole body was read, had the announced length, and was not followed by excess bytes. */
  get complete(): boolean {
    return this.readableEnded && this.broken === undefined && !this.#hasExcess();
  }

  /** Appends received bytes to the body. */
  receive(chunk: Buffer): void {
    this.#received += chunk.length;
    const isFull = chunk.length > 0 && !this.push(chunk);
    // Reading continues if all announced bytes have arrived, or if undici passes an empty chunk, as it does when the
    // connection has ended. A paused parser would then see the connection's end before the response's end.
    if (chunk.length === 0 || this.#received === this.#contentLength) this.#controller.resume();
    else if (isFull) this.#controller.pause();
  }

  /** Ends the body after the bytes that have arrived. */
  finish(broken?: Error): void {
    this.broken = broken;
    this.#isEnded = true;
    this.push(null);
  }

  override _read(): void {
    if (!this.#isEnded) this.#controller.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    // An unread body would keep its connection open.
    if (!this.#isEnded) this.#controller.abort(error ?? abandoned);
    callback(error);
  }
}

// Created once, because destroying a socket with a new error formats its stack, which is slow.
const abandoned = new Error('the response was abandoned');

/**
 * Sends one request once, and returns the response when its head has arrived. Does not follow redirects, retry or
 * decode. Every final status is a response.
 * @throws the error of `beforeFirstByte`, the reason of `signal`, or the reason why no head arrived
 */
export function sendRequest(
  connections: Connections,
  request: WireRequest,
  { maxBuffered, signal, beforeFirstByte }: SendOptions,
): Promise<WireResponse> {
  const { excessCount: excessesBefore } = connections;
  const hasExcess = (): boolean => connections.excessCount !== excessesBefore;
  return new Promise((resolve, reject) => {
    let controller: Controller | undefined;
    let response: WireResponse | undefined;
    const abort = (): void => {
      controller?.abort(signal.reason as Error);
      reject(signal.reason as Error);
    };
    signal.addEventListener('abort', abort, { once: true });
    const end = (error?: Error): void => {
      signal.removeEventListener('abort', abort);
      response?.finish(error);
      if (error !== undefined) reject(error);
    };
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: (requestController) => {
        controller = requestController;
        signal.throwIfAborted();
        beforeFirstByte?.();
      },
      onResponseStart: (responseController, status, headers) => {
        // A 102 or 103 response is followed by the final response.
        if (status < 200) return;
        response = new WireResponse(status, joinValues(headers), responseController, {
          maxBuffered,
          hasExcess,
        });
        response.on('error', () => undefined);
        resolve(response);
      },
      onResponseData: (_, chunk) => response?.receive(chunk),
      onResponseEnd: () => end(),
      onResponseError: (failedController, error) => {
        if (response !== undefined && !failedController.aborted) {
          const remainingData = remainingDataOf(error);
          if (remainingData !== '') response.receive(Buffer.from(remainingData));
        }
        end(error);
        if (failedController?.aborted) response?.destroy(error);
      },
    };
    if (signal.aborted) abort();
    else connections.dispatcher.dispatch(request, handler);
  });
}

// Returns the rest of the packet that broke a body's framing, because it may contain a handle. undici attaches this
// rest to its error. Removes a chunk's size line, which is framing.
function remainingDataOf(error: Error): string {
  const { data } = error as { data?: unknown };
  return typeof data === 'string' ? data.replace(/^[^\r\n{["]{0,40}\r\n/, '') : '';
}

// Joins the values of repeated headers. undici returns header names in lower case.
function joinValues(headers: Headers): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, [value ?? ''].flat().join(', ')]);
  return Object.fromEntries(entries) as Record<string, string>;
}

/**
 * Returns a body's length in bytes according to the response's head; undefined if the head marks the body's end in
 * another way (RFC 9112 6.3).
 */
export function contentLengthOf(headers: Record<string, string>): number | undefined {
  const declaredLength = headers['transfer-encoding'] === undefined ? headers['content-length'] : undefined;
  return declaredLength !== undefined && /^\d{1,15}$/.test(declaredLength)
    ? Number(declaredLength)
    : undefined;
}
