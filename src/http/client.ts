import { messageOf } from '../errors.ts';
import type { AuthScheme, Exchange, Reply } from '../exchange.ts';
import { openConnections, type Connections } from './connections.ts';
import { decoded } from './content-encoding.ts';
import { startDeadline, type Deadline } from './deadline.ts';
import { readBounded } from './read-bounded.ts';
import { RawAnswer } from './raw-answer.ts';
import { headersFor, pathFor } from './request-head.ts';
import { readBytes } from '../files/reused-buffers.ts';
import { TransportError } from './transport-error.ts';

/** Where a client speaks to, and as whom. */
export interface ClientOptions {
  /** Scheme, host, port, and a path prefix if any; no trailing slash. */
  baseUrl: URL;
  key: string;
  userAgent: string;
  connectTimeoutMs?: number;
  /** Called with every request as it goes out (the key redacted by the caller) and its answer's head. */
  trace?: (line: string) => void;
}

/** How one call is made. */
export interface CallOptions {
  auth: AuthScheme;
  /** For the whole call, the answer's body included, ms. */
  timeoutMs: number;
  /** How much of the body is kept; a longer one is cut, and the reply says so. Bytes. */
  maxBytes?: number;
  /** Of a streamed body: how much may wait for its reader, bytes. It is read at once: what has come survives a reset. */
  mostAhead?: number;
  signal?: AbortSignal;
  /** Ends the making of a connection only; once it stands, `signal` alone counts. */
  connectSignal?: AbortSignal;
  /**
   * Runs once the connection stands and before the first byte of the request; the call then has a connection of
   * its own. What it throws ends the call as it is: nothing was sent.
   */
  onConnected?: () => Promise<void>;
  /** Runs directly before the first byte of the request. What it throws keeps the request from being sent. */
  beforeFirstByte?: () => void;
}

/** An answer whose body is still arriving. */
export interface StreamedReply {
  status: number;
  headers: Record<string, string>;
  /** The body's bytes; throws TransportError (phase `sent`) where it is cut. */
  body: AsyncIterable<Uint8Array>;
  /** Gives the connection up. */
  close(): void;
  /** Takes secrets out of text that was made of the body. */
  clean?: (text: string) => string;
}

/** Calls to one gateway. Never retries, never follows a redirect. */
export interface GatewayClient {
  readonly baseUrl: URL;
  /** Where {@link ClientOptions.trace} goes, for those who open connections of their own. */
  readonly trace?: (line: string) => void;
  /**
   * One exchange. A body that is cut or beyond the bound gives a reply with `complete: false`.
   * @throws TransportError where no head of an answer came.
   */
  exchange(request: Exchange, options: CallOptions): Promise<Reply>;
  /** Like {@link exchange}, with the body as it arrives. `timeoutMs` counts up to the head only. */
  stream(request: Exchange, options: CallOptions): Promise<StreamedReply>;
  /** Connections to its origin for results: the first who asks opens them, and they are kept until it is closed. */
  readonly kept: (open: () => Promise<Connections>) => Promise<Connections>;
  /** Closes idle connections. */
  close(): void;
}

const defaultMaxBytes = 16 * 1024 * 1024;
const defaultConnectTimeoutMs = 10_000;
const defaultMostAhead = 512 * 1024;

/** Opens a client; no connection is made before the first call. */
export function createClient(options: ClientOptions): GatewayClient {
  const timeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
  let shared: Promise<Connections> | undefined;
  let kept: Promise<Connections> | undefined;
  const connections = (call: CallOptions, signal: AbortSignal): Promise<Connections> => {
    const { onConnected, connectSignal } = call;
    const signals = [signal, connectSignal];
    const readsUpTo = call.mostAhead && readBytes;
    if (onConnected)
      return openConnections(options.baseUrl, { timeoutMs, most: 1, signals, onConnected, readsUpTo });
    return (shared ??= openConnections(options.baseUrl, { timeoutMs, most: 64 }));
  };
  const open: Open = (request, call) => send(request, call, options, connections);
  return {
    baseUrl: options.baseUrl,
    trace: options.trace,
    exchange: (request, call) => exchange(open, request, call),
    stream: (request, call) => stream(open, request, call),
    kept: (open) => (kept ??= open()),
    close: () => {
      for (const each of [shared, kept])
        each?.then(
          (made) => made.destroy(new Error('the client was closed')),
          () => undefined,
        );
    },
  };
}

// Made once, since a socket that is destroyed has the stack of its error written out.
const ended = new Error('the call has ended');

type Open = (request: Exchange, call: CallOptions) => Promise<Answer>;

interface Answer extends StreamedReply {
  deadline: Deadline;
}

async function exchange(open: Open, request: Exchange, call: CallOptions): Promise<Reply> {
  const { status, headers, body } = await open(request, call);
  const { bytes, complete } = await readBounded(body, call.maxBytes ?? defaultMaxBytes);
  return { status, headers, text: new TextDecoder().decode(bytes), complete };
}

async function stream(open: Open, request: Exchange, call: CallOptions): Promise<StreamedReply> {
  const { deadline, ...answer } = await open(request, call);
  deadline.lift();
  return answer;
}

type ConnectionsFor = (call: CallOptions, signal: AbortSignal) => Promise<Connections>;

// Whatever is wrong with the request itself shows before a connection is made for it, and before it is recorded.
async function send(
  request: Exchange,
  call: CallOptions,
  client: ClientOptions,
  connectionsFor: ConnectionsFor,
): Promise<Answer> {
  const { baseUrl, trace } = client;
  const path = pathFor(request, baseUrl);
  const raw = { path, headers: headersFor(request, call.auth, client), body: request.body };
  const deadline = startDeadline(call.timeoutMs, [call.signal]);
  let own: Connections | undefined;
  const end = (): void => {
    deadline.end();
    own?.destroy(ended);
  };
  try {
    const connections = await connectionsFor(call, deadline.signal);
    if (call.onConnected) own = connections;
    if (deadline.signal.aborted) throw TransportError.unsent(deadline.signal.reason, baseUrl);
    const started = (): void => {
      call.beforeFirstByte?.();
      trace?.(`> ${request.method} ${baseUrl.origin}${path}`);
    };
    const answer = new RawAnswer({ started, mostAhead: call.mostAhead ?? defaultMostAhead });
    const response = await fetched(new URL(baseUrl.origin + path), {
      ...raw,
      method: request.method,
      redirect: 'manual',
      signal: deadline.signal,
      dispatcher: answer.through(connections, { ...raw, origin: baseUrl.origin }),
    });
    // Where the global fetch was replaced by one that passes our dispatcher by, this comes late, but it comes.
    if (own && own.first === undefined) await call.onConnected?.();
    const { status, headers } = answer.head ?? headOf(response);
    trace?.(`< ${status} ${headers['content-type'] ?? ''}`);
    const body = bodyOf(response, answer, baseUrl, end);
    const close = (): void => {
      deadline.abort(new Error('it was given up'));
      end();
    };
    return { status, headers, body, close, deadline };
  } catch (error) {
    // Rejected with what kept the connection from standing, if anything did.
    await own?.first?.finally(end);
    end();
    const cause = causeOf(error);
    if (cause instanceof TransportError || !deadline.passed) throw TransportError.sent(cause, baseUrl);
    const late = new Error(`no answer within ${call.timeoutMs / 1000} s`);
    throw TransportError.sent(late, baseUrl, 'timeout');
  }
}

// fetch refuses some ports, such as 6000 and 10080, before it asks its dispatcher, which knows where to go.
async function fetched(url: URL, init: object): Promise<Response> {
  try {
    return await fetch(url, init);
  } catch (error) {
    if (url.port === '' || messageOf(causeOf(error)) !== 'bad port') throw error;
    url.port = '';
    return fetch(url, init);
  }
}

function headOf({ status, headers }: Response): { status: number; headers: Record<string, string> } {
  return { status, headers: Object.fromEntries(headers) };
}

// fetch says no more than that it failed.
function causeOf(error: unknown): unknown {
  return error instanceof TypeError && error.cause !== undefined ? error.cause : error;
}

function bodyOf(
  response: Response,
  answer: RawAnswer,
  url: URL,
  end: () => void,
): AsyncGenerator<Uint8Array, void> {
  // As long as somebody has its reader, fetch does not take the response for forgotten and end it.
  const fetched = answer.body && response.body?.getReader();
  async function* chunks(): AsyncGenerator<Uint8Array, void> {
    try {
      const body = answer.body ?? response.body;
      if (body) yield* decoded(body, answer.head?.headers['content-encoding']);
      await fetched?.read();
      if (answer.broken) throw answer.broken;
    } catch (error) {
      throw TransportError.sent(causeOf(error), url);
    } finally {
      end();
    }
  }
  return chunks();
}
