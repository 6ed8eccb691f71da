import type { AuthScheme, HttpRequest, Reply } from '../exchange.ts';
import { sendRequest, type WireResponse } from './send-request.ts';
import { openConnections, type Connections, type Socket } from './connections.ts';
import { decodeBody, readBounded } from './body.ts';
import type { Deadline } from '../clock.ts';
import { startLimit, type CallLimit } from './deadline.ts';
import { readBytes } from '../media/buffers.ts';
import { TransportError } from './transport-error.ts';

/** A client's gateway, and the credentials for it. */
export interface ClientOptions {
  /** The scheme, host, port and path prefix, if any; no trailing slash. */
  baseUrl: URL;
  key: string;
  userAgent: string;
  connectTimeoutMs?: number;
  /** Receives each request and the head of its response. The caller must redact the key. */
  trace?: (line: string) => void;
}

/** Options of one call. */
export interface CallOptions {
  auth: AuthScheme;
  /** The time limit for the whole call, including the body, in ms. */
  timeoutMs: number;
  /** The command's deadline. The call is aborted one second later, in any phase. */
  deadline?: Deadline | undefined;
  /** The maximum body length, in bytes. A longer body is truncated, and the reply is marked as incomplete. */
  maxBytes?: number;
  /**
   * The maximum number of bytes to buffer from a streamed body. Bytes are read as soon as they arrive, so that they
   * survive a connection reset.
   */
  maxBuffered?: number;
  signal?: AbortSignal;
  /** Aborts the call while it is connecting. Afterwards, only `signal` aborts the call. */
  connectSignal?: AbortSignal;
  /**
   * Runs when the connection is open, before the first byte of the request. If set, the call uses its own connection.
   * If it throws, nothing is sent, and the call fails with that error.
   */
  onConnected?: (socket?: Socket) => Promise<void>;
  /** Runs immediately before the first byte of the request. If it throws, nothing is sent. */
  beforeFirstByte?: () => void;
}

/** A response whose body is still arriving. */
export interface StreamedReply {
  status: number;
  headers: Record<string, string>;
  /** The body's bytes; throws TransportError (phase `sent`) if the body is cut off. */
  body: AsyncIterable<Uint8Array>;
  /** Closes the connection. */
  close(): void;
  /** Removes secrets from text that was decoded from the body. */
  clean?: (text: string) => string;
}

/** Makes calls to one gateway. Never retries, and never follows a redirect. */
export interface GatewayClient {
  readonly baseUrl: URL;
  /** The `trace` of {@link ClientOptions}, for code that opens its own connections. */
  readonly trace?: (line: string) => void;
  /**
   * Sends one request. If the body is cut off or too long, the reply has `complete: false`.
   * @throws TransportError if no response head arrived.
   */
  exchange(request: HttpRequest, options: CallOptions): Promise<Reply>;
  /**
   * Like {@link exchange}, but returns the body as it arrives. `timeoutMs` limits the time to the head,
   * `deadline` the whole call.
   */
  stream(request: HttpRequest, options: CallOptions): Promise<StreamedReply>;
  /**
   * Returns the connections to the gateway's origin that all result downloads share. The first caller opens them, and
   * they remain open until the client is closed.
   */
  readonly downloadConnections: (open: () => Promise<Connections>) => Promise<Connections>;
  /** The deadline of every call, if there is one. It also ends retries. */
  readonly deadline?: Deadline;
  /** Aborts every call that has no signal of its own. It also ends retries. */
  readonly signal?: AbortSignal | undefined;
  /** Closes the shared connections and aborts their requests. */
  close(): void;
}

/**
 * How long a call may continue after the deadline, in ms, so that a last poll at the deadline still gets its response.
 */
export const afterDeadlineMs = 1000;

/** Returns a client that applies `deadline` to every call, and `signal` to calls without their own. */
export function withDeadline(client: GatewayClient, deadline: Deadline, signal?: AbortSignal): GatewayClient {
  const defaults = { deadline, signal };
  return {
    ...client,
    ...defaults,
    exchange: (request, options) => client.exchange(request, { ...defaults, ...options }),
    stream: (request, options) => client.stream(request, { ...defaults, ...options }),
  };
}

const defaultMaxBytes = 16 * 1024 * 1024;
const defaultConnectTimeoutMs = 10_000;
const defaultMaxBuffered = 512 * 1024;

/** Returns a client. It opens no connection before the first call. */
export function createClient(options: ClientOptions): GatewayClient {
  const { baseUrl, trace, connectTimeoutMs: timeoutMs = defaultConnectTimeoutMs } = options;
  let shared: Promise<Connections> | undefined;
  let resultConnections: Promise<Connections> | undefined;
  const sharedConnections = (): Promise<Connections> =>
    (shared ??= openConnections(baseUrl, { timeoutMs, maxConnections: 64 }));
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
      const { limit, ...response } = await open(request, call);
      limit.restart(msUntilCut(call));
      return response;
    },
    downloadConnections: (make) => (resultConnections ??= make()),
    close: () => {
      for (const each of [shared, resultConnections])
        each?.then(
          (connections) => connections.destroy(new Error('the client was closed')),
          () => undefined,
        );
    },
  };
}

interface Call extends StreamedReply {
  limit: CallLimit;
}

// Returns the time in ms until the command's deadline ends the call.
function msUntilCut({ deadline }: CallOptions): number {
  return (deadline?.remainingMs() ?? Infinity) + afterDeadlineMs;
}

/**
 * Sends a request that must be recorded before its first byte (design 5), on a new connection after `onConnected` has
 * returned. If `onConnected` did not run, nothing is sent.
 */
async function sendOnOwnConnection(
  request: HttpRequest,
  call: CallOptions & { onConnected: (socket?: Socket) => Promise<void> },
  client: ClientOptions,
  timeoutMs: number,
): Promise<Call> {
  let isRecorded = false;
  let connections: Connections | undefined;
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
    const options = { timeoutMs, maxConnections: 1, signals, onConnected, readsUpTo };
    connections = await openConnections(client.baseUrl, options).catch((error: unknown) => {
      throw TransportError.unsent(error, client.baseUrl);
    });
    return connections;
  };
  const destroy = (): void => connections?.destroy(callEnded);
  try {
    return await send(request, { ...call, beforeFirstByte }, client, connect, destroy);
  } catch (error) {
    // If the connection itself failed, report its error.
    await connections?.first?.finally(destroy);
    destroy();
    throw error;
  }
}

// Created once, because destroying a socket with a new error formats its stack, which is slow.
const callEnded = new Error('the call has ended');

// Sends a request. Validates it before a connection is opened and the request is recorded.
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
  const limit = startLimit(Math.min(call.timeoutMs, msUntilCut(call)), [call.signal]);
  const end = (): void => {
    limit.end();
    onEnd();
  };
  let isStarted = false;
  try {
    const connections = await connect(limit.signal);
    if (limit.signal.aborted) throw TransportError.unsent(limit.signal.reason, baseUrl);
    const beforeFirstByte = (): void => {
      call.beforeFirstByte?.();
      isStarted = true;
      trace?.(`> ${method} ${baseUrl.origin}${path}`);
    };
    const response = await sendRequest(
      connections,
      { method, origin: baseUrl.origin, path, headers, body },
      { beforeFirstByte, maxBuffered: call.maxBuffered ?? defaultMaxBuffered, signal: limit.signal },
    );
    trace?.(`< ${response.statusCode} ${response.headers['content-type'] ?? ''}`);
    const close = (): void => {
      limit.abort(new Error('the call was abandoned'));
      end();
    };
    const { statusCode: status } = response;
    return { status, headers: response.headers, body: bodyOf(response, baseUrl, end), close, limit };
  } catch (error) {
    limit.end();
    // An aborted request never starts, so nothing was sent.
    if (call.onConnected && limit.signal.aborted && !isStarted)
      throw TransportError.abortedBeforeSend('the call was stopped before its first byte');
    if (error instanceof TransportError || !limit.hasPassed) throw TransportError.sent(error, baseUrl);
    const isCut = (call.deadline?.remainingMs() ?? Infinity) < call.timeoutMs;
    const timeoutError = new Error(
      isCut ? 'the deadline passed' : `no response within ${call.timeoutMs / 1000} s`,
    );
    throw TransportError.sent(timeoutError, baseUrl, 'timeout');
  }
}

async function* bodyOf(response: WireResponse, url: URL, end: () => void): AsyncGenerator<Uint8Array, void> {
  try {
    yield* decodeBody(response, response.headers['content-encoding']);
    if (response.broken) throw response.broken;
  } catch (error) {
    throw TransportError.sent(error, url);
  } finally {
    end();
  }
}

/**
 * Returns a request's path, prefixed with the base URL's path.
 * @throws TypeError if the path is not percent-encoded.
 */
function pathFor(request: HttpRequest, baseUrl: URL): string {
  const path = baseUrl.pathname.replace(/\/$/, '') + request.path;
  if (/[^\x21-\x7e]/.test(path))
    throw new TypeError(`the path ${JSON.stringify(path)} is not percent-encoded`);
  return path;
}

/**
 * Returns all of a request's headers, including the key if `auth` requires it. @throws TypeError if a
 * header is invalid.
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
    if (!tokenPattern.test(name)) throw new TypeError(`${JSON.stringify(name)} is not a valid header name`);
    if (!sendablePattern.test(value))
      throw new TypeError(`the header ${name} contains a character that cannot be sent`);
  }
  return headers;
}

// RFC 9110 5.6.2 and 5.5: visible ASCII, spaces, tabs, and non-ASCII Latin-1 characters.
const tokenPattern = /^[\w!#$%&'*+.^`|~-]+$/;
const sendablePattern = /^[\t\x20-\x7e\x80-\xff]*$/;
