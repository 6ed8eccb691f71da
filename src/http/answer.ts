import { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Connections } from './connections.ts';

type Controller = Dispatcher.DispatchController;
type Headers = Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>[2];

/** A request as it goes on the wire; nothing is added to it but what HTTP/1.1 needs. */
export interface WireRequest {
  method: string;
  origin: string;
  /** Path and query, percent-encoded. */
  path: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
}

/** How one request is sent. */
export interface SendOptions {
  /** How much of the body may wait for its reader before the connection pauses, bytes. */
  maxBuffered: number;
  /** Ends the call: before the first byte, nothing is sent. */
  signal: AbortSignal;
  /** Runs directly before the first byte of the request. If it throws, nothing is sent. */
  beforeFirstByte?: () => void;
}

/**
 * The head of an answer, and its body as a stream of the bytes on the wire. The body ends without an error even if it
 * breaks off, so that a reader gets every byte that arrived: `broken` and `complete` say how it ended.
 */
export class Answer extends Readable {
  /** Why the body is not whole, once it has ended. */
  broken: Error | undefined;
  readonly #controller: Controller;
  readonly #hasExcess: () => boolean;
  readonly #contentLength: number | undefined;
  #received = 0;
  #isEnded = false;

  constructor(
    readonly statusCode: number,
    /** Names in lower case; the values of a repeated header are joined by `, `. */
    readonly headers: Record<string, string>,
    controller: Controller,
    { maxBuffered, hasExcess }: { maxBuffered: number; hasExcess: () => boolean },
  ) {
    super({ highWaterMark: maxBuffered });
    this.#controller = controller;
    this.#hasExcess = hasExcess;
    this.#contentLength = contentLengthOf(headers);
  }

  /** True once the whole body was read, it ended as its head announced, and nothing followed it. */
  get complete(): boolean {
    return this.readableEnded && this.broken === undefined && !this.#hasExcess();
  }

  /** Adds bytes that arrived. */
  receive(chunk: Buffer): void {
    this.#received += chunk.length;
    const isFull = chunk.length > 0 && !this.push(chunk);
    // No more is to come if all announced bytes are here, or if undici passes nothing, as it does once the connection has
    // ended. A parser that is paused then would see the connection's end before the answer's.
    if (chunk.length === 0 || this.#received === this.#contentLength) this.#controller.resume();
    else if (isFull) this.#controller.pause();
  }

  /** Ends the body after the bytes that arrived. */
  finish(broken?: Error): void {
    this.broken = broken;
    this.#isEnded = true;
    this.push(null);
  }

  override _read(): void {
    if (!this.#isEnded) this.#controller.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    // A body without a reader must not keep its connection.
    if (!this.#isEnded) this.#controller.abort(error ?? givenUp);
    callback(error);
  }
}

// Made once: a socket that is destroyed has the stack of its error written out.
const givenUp = new Error('the answer was given up');

/**
 * Sends one request, once, and returns the answer as soon as its head is here. Follows, repeats and decodes nothing;
 * any final status is an answer.
 * @throws what `beforeFirstByte` throws, the reason of `signal`, or why no head arrived.
 */
export function sendOn(
  connections: Connections,
  request: WireRequest,
  { maxBuffered, signal, beforeFirstByte }: SendOptions,
): Promise<Answer> {
  const { excesses } = connections;
  const hasExcess = (): boolean => connections.excesses !== excesses;
  return new Promise((resolve, reject) => {
    let controller: Controller | undefined;
    let answer: Answer | undefined;
    const abort = (): void => {
      controller?.abort(signal.reason as Error);
      reject(signal.reason as Error);
    };
    signal.addEventListener('abort', abort, { once: true });
    const end = (error?: Error): void => {
      signal.removeEventListener('abort', abort);
      answer?.finish(error);
      if (error !== undefined) reject(error);
    };
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: (given) => {
        controller = given;
        signal.throwIfAborted();
        beforeFirstByte?.();
      },
      onResponseStart: (given, status, headers) => {
        // 102 and 103 announce the head that follows.
        if (status < 200) return;
        answer = new Answer(status, joined(headers), given, { maxBuffered, hasExcess });
        answer.on('error', () => undefined);
        resolve(answer);
      },
      onResponseData: (_, chunk) => answer?.receive(chunk),
      onResponseEnd: () => end(),
      onResponseError: (given, error) => {
        if (answer !== undefined && !given.aborted) {
          const rest = restOf(error);
          if (rest !== '') answer.receive(Buffer.from(rest));
        }
        end(error);
        if (given?.aborted) answer?.destroy(error);
      },
    };
    if (signal.aborted) abort();
    else connections.dispatcher.dispatch(request, handler);
  });
}

// The packet that breaks the framing of a body may hold a handle; undici attaches it to its error. A chunk's size is
// framing, and no part of the body.
function restOf(error: Error): string {
  const { data } = error as { data?: unknown };
  return typeof data === 'string' ? data.replace(/^[^\r\n{["]{0,40}\r\n/, '') : '';
}

// undici gives names in lower case.
function joined(headers: Headers): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, [value ?? ''].flat().join(', ')]);
  return Object.fromEntries(entries) as Record<string, string>;
}

/** The length of a body by its head, bytes; undefined if the body's end is told in another way (RFC 9112 6.3). */
export function contentLengthOf(headers: Record<string, string>): number | undefined {
  const stated = headers['transfer-encoding'] === undefined ? headers['content-length'] : undefined;
  return stated !== undefined && /^\d{1,15}$/.test(stated) ? Number(stated) : undefined;
}
