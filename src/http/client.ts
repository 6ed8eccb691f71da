import type { AuthScheme, HttpRequest, Reply } from '../exchange.ts';
import { sendOn, type Answer } from './answer.ts';
import { openConnections, type Connections, type Socket } from './connections.ts';
import { decoded } from './content-encoding.ts';
import type { Deadline } from '../clock.ts';
import { startLimit, type CallLimit } from './deadline.ts';
import { readBounded } from './read-bounded.ts';
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
  /** The deadline of the command: one second later the call is cut, in whatever phase it is. */
  deadline?: Deadline | undefined;
  /** How much of the body is kept; a longer one is cut, and the reply says so. Bytes. */
  maxBytes?: number;
  /** Of a streamed body: how much may wait for its reader, bytes. It is read at once: what has come survives a reset. */
  maxBuffered?: number;
  signal?: AbortSignal;
  /** Aborts only connecting; once connected, `signal` alone counts. */
  connectSignal?: AbortSignal;
  /**
   * Runs when the connection is ready, before the first byte of the request; the call then has a connection of its own.
   * If it throws, nothing is sent, and the call fails with that error.
   */
  onConnected?: (socket?: Socket) => Promise<void>;
  /** Runs directly before the first byte of the request. What it throws keeps the request from being sent. */
  beforeFirstByte?: () => void;
}

/** An answer whose body is still arriving. */
export interface StreamedReply {
  status: number;
  headers: Record<string, string>;
  /** The body's bytes; throws TransportError (phase `sent`) if it is cut. */
  body: AsyncIterable<Uint8Array>;
  /** Gives the connection up. */
  close(): void;
  /** Takes secrets out of text that was made of the body. */
  clean?: (text: string) => string;
}

/** Calls to one gateway. Never retries, never follows a redirect. */
export interface GatewayClient {
  readonly baseUrl: URL;
  /** The target of {@link ClientOptions.trace}, for code that opens connections of its own. */
  readonly trace?: (line: string) => void;
  /**
   * One exchange. A body that is cut or beyond the bound gives a reply with `complete: false`.
   * @throws TransportError if no response head arrived.
   */
  exchange(request: HttpRequest, options: CallOptions): Promise<Reply>;
  /** Like {@link exchange}, with the body as it arrives. `timeoutMs` counts up to the head only, `deadline` for all of it. */
  stream(request: HttpRequest, options: CallOptions): Promise<StreamedReply>;
  /** Connections to its origin for results: the first who asks opens them, and they are kept until it is closed. */
  readonly kept: (open: () => Promise<Connections>) => Promise<Connections>;
  /** The deadline that cuts every call, if there is one: retries end with it too. */
  readonly deadline?: Deadline;
  /** Closes idle connections. */
  close(): void;
}

/** How long a call may go on after the deadline, ms: a last poll at the deadline still gets its response. */
export const afterDeadlineMs = 1000;

/** Returns a client whose every call also ends with `deadline`. */
export function withDeadline(client: GatewayClient, deadline: Deadline): GatewayClient {
  return {
    ...client,
    deadline,
    exchange: (request, options) => client.exchange(request, { deadline, ...options }),
    stream: (request, options) => client.stream(request, { deadline, ...options }),
  };
}

const defaultMaxBytes = 16 * 1024 * 1024;
const defaultConnectTimeoutMs = 10_000;
const defaultMaxBuffered = 512 * 1024;

/** Opens a client; no connection is made before the first call. */
export function createClient(options: ClientOptions): GatewayClient {
  const { baseUrl, trace, connectTimeoutMs: timeoutMs = defaultConnectTimeoutMs } = options;
  let shared: Promise<Connections> | undefined;
  let kept: Promise<Connections> | undefined;
  const sharedConnections = (): Promise<Connections> =>
    (shared ??= openConnections(baseUrl, { timeoutMs, most: 64 }));
  const open = (request: HttpRequest, call: CallOptions): Promise<Call> =>
    call.onConnected === undefined
      ? send(request, call, options, sharedConnections)
      : sendOnOwnConnection(request, { ...call, onConnected: call.onConnected }, options, timeoutMs);
  return {
    baseUrl,
    trace,
    exchange: async (request, call) => {
      const { status, headers, body } = await open(request, call);
      const { bytes, complete } = await readBounded(body, call.maxBytes ?? defaultMaxBytes);
      return { status, headers, text: new TextDecoder().decode(bytes), complete };
    },
    stream: async (request, call) => {
      const { limit, ...answer } = await open(request, call);
      limit.restart(untilCut(call));
      return answer;
    },
    kept: (make) => (kept ??= make()),
    close: () => {
      for (const each of [shared, kept])
        each?.then(
          (made) => made.destroy(new Error('the client was closed')),
          () => undefined,
        );
    },
  };
}

interface Call extends StreamedReply {
  limit: CallLimit;
}

// The time until the deadline of the command cuts the call, ms.
function untilCut({ deadline }: CallOptions): number {
  return (deadline?.leftMs() ?? Infinity) + afterDeadlineMs;
}

/**
 * Sends a request that must be recorded before its first byte (design 5): on a fresh connection, whose `onConnected` has
 * returned. If it did not run, whatever made the connection has passed it by, and nothing is sent.
 */
async function sendOnOwnConnection(
  request: HttpRequest,
  call: CallOptions & { onConnected: (socket?: Socket) => Promise<void> },
  client: ClientOptions,
  timeoutMs: number,
): Promise<Call> {
  let isRecorded = false;
  let own: Connections | undefined;
  const onConnected = async (socket: Socket): Promise<void> => {
    await call.onConnected(socket);
    isRecorded = true;
  };
  const beforeFirstByte = (): void => {
    if (!isRecorded)
      throw TransportError.abortedBeforeSend('the connection was made without the check before sending');
    call.beforeFirstByte?.();
  };
  const connect = async (signal: AbortSignal): Promise<Connections> => {
    const signals = [signal, call.connectSignal];
    const readsUpTo = call.maxBuffered && readBytes;
    const options = { timeoutMs, most: 1, signals, onConnected, readsUpTo };
    own = await openConnections(client.baseUrl, options);
    return own;
  };
  const end = (): void => own?.destroy(ended);
  try {
    return await send(request, { ...call, beforeFirstByte }, client, connect, end);
  } catch (error) {
    // If the connection itself failed, its error is the one to tell.
    await own?.first?.finally(end);
    end();
    throw error;
  }
}

// Made once, since a socket that is destroyed has the stack of its error written out.
const ended = new Error('the call has ended');

// Whatever is wrong with the request itself shows before a connection is made for it, and before it is recorded.
async function send(
  request: HttpRequest,
  call: CallOptions,
  client: ClientOptions,
  connect: (signal: AbortSignal) => Promise<Connections>,
  onEnd: () => void = () => undefined,
): Promise<Call> {
  const { baseUrl, trace } = client;
  const { method, body } = request;
  const path = pathFor(request, baseUrl);
  const headers = headersFor(request, call.auth, client);
  const limit = startLimit(Math.min(call.timeoutMs, untilCut(call)), [call.signal]);
  const end = (): void => {
    limit.end();
    onEnd();
  };
  try {
    const connections = await connect(limit.signal);
    if (limit.signal.aborted) throw TransportError.unsent(limit.signal.reason, baseUrl);
    const beforeFirstByte = (): void => {
      call.beforeFirstByte?.();
      trace?.(`> ${method} ${baseUrl.origin}${path}`);
    };
    const answer = await sendOn(
      connections,
      { method, origin: baseUrl.origin, path, headers, body },
      { beforeFirstByte, maxBuffered: call.maxBuffered ?? defaultMaxBuffered, signal: limit.signal },
    );
    trace?.(`< ${answer.statusCode} ${answer.headers['content-type'] ?? ''}`);
    const close = (): void => {
      limit.abort(new Error('it was given up'));
      end();
    };
    const { statusCode: status } = answer;
    return { status, headers: answer.headers, body: bodyOf(answer, baseUrl, end), close, limit };
  } catch (error) {
    limit.end();
    if (error instanceof TransportError || !limit.passed) throw TransportError.sent(error, baseUrl);
    const isCut = (call.deadline?.leftMs() ?? Infinity) < call.timeoutMs;
    const late = new Error(
      isCut ? 'the time to wait ran out' : `no answer within ${call.timeoutMs / 1000} s`,
    );
    throw TransportError.sent(late, baseUrl, 'timeout');
  }
}

async function* bodyOf(answer: Answer, url: URL, end: () => void): AsyncGenerator<Uint8Array, void> {
  try {
    yield* decoded(answer, answer.headers['content-encoding']);
    if (answer.broken) throw answer.broken;
  } catch (error) {
    throw TransportError.sent(error, url);
  } finally {
    end();
  }
}

/**
 * The path of a request below the base URL's own.
 * @throws TypeError if it is not percent-encoded.
 */
function pathFor(request: HttpRequest, baseUrl: URL): string {
  const path = baseUrl.pathname.replace(/\/$/, '') + request.path;
  if (/[^\x21-\x7e]/.test(path))
    throw new TypeError(`the path ${JSON.stringify(path)} is not percent-encoded`);
  return path;
}

/**
 * All headers of a request, with the key if `auth` asks for it.
 * @throws TypeError if one cannot be sent as it is.
 */
function headersFor(
  request: HttpRequest,
  auth: AuthScheme,
  client: { baseUrl: URL; key: string; userAgent: string },
): Record<string, string> {
  const headers = {
    'user-agent': client.userAgent,
    accept: 'application/json, */*;q=0.5',
    'accept-encoding': 'identity',
    ...request.headers,
    ...(request.body !== undefined && { 'content-length': String(Buffer.byteLength(request.body)) }),
    ...(client.key !== '' && { [auth.header]: `${auth.scheme} ${client.key}`.trim() }),
  };
  for (const [name, value] of Object.entries(headers)) {
    if (!isToken.test(name)) throw new TypeError(`the header ${JSON.stringify(name)} has no valid name`);
    if (!isSendable.test(value))
      throw new TypeError(`the header ${name} holds a character that cannot be sent`);
  }
  return headers;
}

// RFC 9110 5.6.2 and 5.5: visible ASCII, blanks, tabs and what Latin-1 has beyond ASCII.
const isToken = /^[\w!#$%&'*+.^`|~-]+$/;
const isSendable = /^[\t\x20-\x7e\x80-\xff]*$/;
