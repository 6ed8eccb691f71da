import type { Dispatcher } from 'undici';
import type { Connections } from './connections.ts';
import { PushedBody } from './pushed-body.ts';

type Controller = Dispatcher.DispatchController;
type Headers = Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>[2];

/** What a request says on the wire, and nothing else. */
export interface RawRequest {
  origin: string;
  path: string;
  headers: Record<string, string>;
  body?: string;
}

/**
 * An answer as it came, taken on its way from undici to the global fetch, which has a mind of its own: it sends a
 * request again on 421, hides a 407, gives no body with some statuses, undoes content codings, and drops what has come
 * when either that or the connection breaks. So fetch is told of a plain 200 whose body just ends; the body itself goes
 * past it, since it would copy each byte twice and leave it to the garbage collector.
 */
export class RawAnswer {
  /** Undefined until the head came. */
  head: { status: number; headers: Record<string, string> } | undefined;
  /** Why the body is not whole, once it has ended. */
  broken: Error | undefined;
  #isDispatched = false;
  /** Bytes of the body that came, and that its head announced. */
  #came = 0;
  #announced: number | undefined;
  readonly #body: PushedBody | undefined;
  readonly #started: (() => void) | undefined;

  /**
   * `started` is told when the request is about to leave on its connection; what it throws keeps it from leaving.
   * `mostAhead` has the body kept here, and says how much of it may wait for its reader, bytes.
   */
  constructor({ started, mostAhead }: { started?: () => void; mostAhead?: number } = {}) {
    this.#started = started;
    this.#body = mostAhead === undefined ? undefined : new PushedBody(mostAhead);
  }

  /** The body as it came, where it is kept here and the request went through here. */
  get body(): AsyncIterable<Uint8Array> | undefined {
    return this.#isDispatched ? this.#body : undefined;
  }

  /** A dispatcher for one request: it sends what is given here, once. */
  through(connections: Connections, request: RawRequest): Pick<Dispatcher, 'dispatch'> {
    const dispatch: Dispatcher['dispatch'] = (options, handler) => {
      if (this.#isDispatched) throw new Error('a request is sent once');
      this.#isDispatched = true;
      const taking = this.#taking(connections.wrapped(handler));
      return connections.dispatcher.dispatch({ ...options, ...request }, taking);
    };
    return { dispatch };
  }

  #taking(handler: Dispatcher.DispatchHandler): Dispatcher.DispatchHandler {
    const end = (controller: Controller, error?: Error): void => {
      this.broken = error;
      this.#body?.end();
      handler.onResponseEnd?.(controller, {});
    };
    return {
      onRequestStart: (controller, context) => {
        this.#started?.();
        handler.onRequestStart?.(controller, context);
      },
      onResponseStart: (controller, status, headers) => {
        // 102 and 103 announce the head that follows.
        if (status < 200) return;
        this.head = { status, headers: joined(headers) };
        this.#announced = contentLengthOf(this.head.headers);
        Object.assign(controller, { rawHeaders: [] });
        handler.onResponseStart?.(controller, 200, {}, '');
      },
      onResponseData: (controller, chunk) => this.#pass(controller, chunk, handler),
      onResponseEnd: (controller) => end(controller),
      onResponseError: (controller, error) => {
        // Whoever aborted it waits for no end.
        if (this.head === undefined || controller.aborted) {
          this.#body?.end(error);
          return handler.onResponseError?.(controller, error);
        }
        // What came in the packet that breaks the body's framing may hold a handle; what should be a size is none.
        const { data } = error as { data?: unknown };
        const rest = typeof data === 'string' ? data.replace(/^[^\r\n{["]{0,40}\r\n/, '') : '';
        if (rest !== '') this.#pass(controller, Buffer.from(rest), handler);
        end(controller, error);
      },
    };
  }

  #pass(controller: Controller, chunk: Buffer, handler: Dispatcher.DispatchHandler): void {
    this.#came += chunk.length;
    if (chunk.length > 0) {
      if (this.#body !== undefined) this.#body.push(chunk, controller);
      else handler.onResponseData?.(controller, chunk);
    }
    // No more is to come: all that was announced is here, or undici passes nothing, as it does once the connection has
    // ended. If it were left waiting, it would learn of the connection's end before it sees the answer's.
    if (chunk.length === 0 || this.#came === this.#announced) controller.resume();
  }
}

// Names come in lower case.
function joined(headers: Headers): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, [value ?? ''].flat().join(', ')]);
  return Object.fromEntries(entries) as Record<string, string>;
}

/** How many bytes a head announces; undefined where the body's end is told in another way (RFC 9112 6.3). */
export function contentLengthOf(headers: Record<string, string>): number | undefined {
  const stated = headers['transfer-encoding'] === undefined ? headers['content-length'] : undefined;
  return stated !== undefined && /^\d{1,15}$/.test(stated) ? Number(stated) : undefined;
}
