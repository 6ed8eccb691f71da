import { Agent, request as openRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { AuthScheme, Exchange, Reply } from '../exchange.ts';
import { connect } from './connect.ts';
import { decoded } from './content-encoding.ts';
import { startDeadline, type Deadline } from './deadline.ts';
import { readBounded } from './read-bounded.ts';
import { headersFor, pathFor } from './request-head.ts';
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
  signal?: AbortSignal;
  /** Ends the making of a connection only; once it stands, `signal` alone counts. */
  connectSignal?: AbortSignal;
  /**
   * Runs once the connection stands and before the first byte of the request; the call then has a connection of
   * its own. What it throws ends the call as it is: nothing was sent.
   */
  onConnected?: () => Promise<void>;
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
  /** Closes idle connections. */
  close(): void;
}

const defaultMaxBytes = 16 * 1024 * 1024;
const defaultConnectTimeoutMs = 10_000;

/** Opens a client; no connection is made before the first call. */
export function createClient(options: ClientOptions): GatewayClient {
  const closing = new AbortController();
  const agent = keepAliveAgent(options, closing.signal);
  const open: Open = (request, call, deadline) => send(request, call, deadline, options, agent);
  return {
    baseUrl: options.baseUrl,
    trace: options.trace,
    exchange: (request, call) => exchange(open, request, call),
    stream: (request, call) => stream(open, request, call, options.baseUrl),
    close: () => {
      closing.abort();
      agent.destroy();
    },
  };
}

type Open = (request: Exchange, call: CallOptions, deadline: Deadline) => Promise<IncomingMessage>;

async function exchange(open: Open, request: Exchange, call: CallOptions): Promise<Reply> {
  const deadline = startDeadline(call.timeoutMs, [call.signal]);
  try {
    const message = await open(request, call, deadline);
    const body = decoded(message, message.headers['content-encoding']);
    const { bytes, complete } = await readBounded(body, call.maxBytes ?? defaultMaxBytes);
    message.destroy();
    return {
      status: message.statusCode ?? 0,
      headers: headersOf(message),
      text: new TextDecoder().decode(bytes),
      complete: complete && message.complete,
    };
  } finally {
    deadline.end();
  }
}

async function stream(open: Open, request: Exchange, call: CallOptions, url: URL): Promise<StreamedReply> {
  const deadline = startDeadline(call.timeoutMs, [call.signal]);
  try {
    const message = await open(request, call, deadline);
    deadline.lift();
    message.once('close', () => deadline.end());
    return streamed(message, url);
  } catch (error) {
    deadline.end();
    throw error;
  }
}

// Whatever is wrong with the request itself shows before a connection is made for it, and before it is recorded.
async function send(
  request: Exchange,
  call: CallOptions,
  deadline: Deadline,
  client: ClientOptions,
  agent: Agent,
): Promise<IncomingMessage> {
  const { signal } = deadline;
  const path = pathFor(request, client.baseUrl);
  const headers = headersFor(request, call.auth, client);
  const socket = call.onConnected && (await ownConnection({ ...call, signal }, call.onConnected, client));
  const outgoing = openRequest({
    host: client.baseUrl.hostname,
    method: request.method,
    path,
    headers,
    maxHeaderSize: 64 * 1024,
    signal,
    ...(socket ? { createConnection: () => socket } : { agent }),
  });
  client.trace?.(`> ${request.method} ${client.baseUrl.origin}${path}`);
  try {
    return await headOf(outgoing, request.body, client, signal);
  } catch (error) {
    if (!deadline.passed) throw TransportError.sent(error, client.baseUrl);
    const late = new Error(`no answer within ${call.timeoutMs / 1000} s`);
    throw TransportError.sent(late, client.baseUrl, 'timeout');
  }
}

// The connection stands and `sending` is on disk before the first byte: design 5.
async function ownConnection(
  call: CallOptions,
  onConnected: () => Promise<void>,
  client: ClientOptions,
): Promise<Duplex> {
  const socket = await connect(client.baseUrl, {
    timeoutMs: client.connectTimeoutMs ?? defaultConnectTimeoutMs,
    signal: call.signal,
    connectSignal: call.connectSignal,
  });
  try {
    await onConnected();
  } catch (error) {
    socket.destroy();
    throw error;
  }
  if (socket.destroyed) throw TransportError.sent(new Error('it was closed at once'), client.baseUrl);
  return socket;
}

function headOf(
  outgoing: ClientRequest,
  body: string | undefined,
  client: ClientOptions,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    // A request that still waits for the agent's connection tells of its end only once that stands.
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    if (signal.aborted) reject(signal.reason as Error);
    outgoing.once('error', reject);
    // An upgrade that nobody asked for ends without an error.
    outgoing.once('close', () => reject(new Error('it was closed without an answer')));
    outgoing.once('response', (message) => {
      // A body without a length would pass for whole where its connection breaks; bytes behind its end do not matter.
      outgoing.off('error', reject).on('error', (error) => {
        if (!message.complete) message.destroy(error);
      });
      client.trace?.(`< ${message.statusCode ?? 0} ${message.headers['content-type'] ?? ''}`);
      resolve(message);
    });
    outgoing.end(body);
  });
}

function keepAliveAgent(options: ClientOptions, closing: AbortSignal): Agent {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const timeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
  agent.createConnection = (_options, done) => {
    connect(options.baseUrl, { timeoutMs, signal: closing }).then(
      (socket) => done?.(null, socket),
      (error: unknown) => done?.(error as Error, undefined as unknown as Duplex),
    );
    return undefined;
  };
  return agent;
}

/** A message's headers with names in lower case and repeated values joined. */
export function headersOf(message: IncomingMessage): Record<string, string> {
  const entries = Object.entries(message.headersDistinct).map(([name, values]) => [
    name,
    values?.join(', ') ?? '',
  ]);
  return Object.fromEntries(entries) as Record<string, string>;
}

function streamed(message: IncomingMessage, url: URL): StreamedReply {
  message.on('error', () => undefined);
  return {
    status: message.statusCode ?? 0,
    headers: headersOf(message),
    body: bodyOf(message, url),
    close: () => message.destroy(new Error('it was given up')),
  };
}

async function* bodyOf(message: IncomingMessage, url: URL): AsyncIterable<Uint8Array> {
  try {
    for await (const chunk of decoded(message, message.headers['content-encoding'])) yield chunk;
  } catch (error) {
    throw TransportError.sent(error, url);
  }
  if (!message.complete) throw TransportError.sent(new Error('the answer was cut'), url);
}
