import type { buildConnector, Client, Dispatcher, Pool } from 'undici';
import { messageOf, systemCode } from '../errors.ts';
import { startLimit, type CallLimit } from './deadline.ts';
import {
  hostOf,
  isAddress,
  isWithinReach,
  lookupWithin,
  privateAddressError,
  proxyFor,
  type ProxySetting,
} from './reach.ts';
import type * as ProxyAgent from './proxy-agent.ts';
import { reuseBuffers } from '../media/buffers.ts';
import { TransportError } from './transport-error.ts';
import type * as Undici from './undici.ts';

type Connector = buildConnector.connector;
/** A proxy, and the agent that connects through it. */
type ProxyRoute = ProxySetting & { agent: typeof ProxyAgent.proxyAgent };

/** An open TCP connection, with or without TLS. */
export type Socket = NonNullable<Parameters<buildConnector.Callback>[1]>;

/** Options of {@link openConnections}. */
export interface ConnectionOptions {
  /** Time limit for connecting, including TLS, in ms. */
  timeoutMs: number;
  /** The maximum number of connections. If 1, the only connection is never replaced. */
  maxConnections: number;
  /** For large bodies: the size, in bytes, of the buffer that connections without TLS read into and reuse. */
  reusedBufferBytes?: number | undefined;
  /**
   * The base URL. If set, connections to networks nearer to this machine are refused (see `isWithinReach`). The
   * addresses that DNS returns are checked too.
   */
  within?: URL;
  /** Signals that abort connecting. They have no effect on an open connection. */
  signals?: readonly (AbortSignal | undefined)[];
  /**
   * Runs when a connection is open, before the first byte of a request. If it throws, the call fails with that error,
   * and nothing is sent.
   */
  onConnected?: (socket: Socket) => Promise<void>;
}

/**
 * Prepares connections to a URL's origin. The first request opens a connection. If the environment sets a proxy,
 * connections go through a tunnel, except to loopback. For https, the server's certificate is verified.
 */
export async function openConnections(url: URL, options: ConnectionOptions): Promise<Connections> {
  // Loaded on demand, because local commands do not need undici and few commands need a proxy.
  const proxy = proxyFor(url);
  const route = proxy && { ...proxy, agent: (await import('./proxy-agent.ts')).proxyAgent };
  return new Connections(await import('./undici.ts'), route, url, options);
}

/** The connections to one origin. */
export class Connections {
  /** Sends requests, without pipelining, retries or redirects. */
  readonly dispatcher: Dispatcher;
  /**
   * The first connection, set when it is started. Rejected with TransportError `unsent` (no byte of a request was
   * sent), `sent` if a connection without TLS was accepted and then reset, or the error of `onConnected`.
   */
  first: Promise<Socket> | undefined;
  /** The proxy (see {@link ProxySetting.text}), or '' for none; set when the first connection is started. */
  proxy = '';
  /** The error if the proxy cannot be used; set when the first connection is started. */
  proxyProblem: Error | undefined;
  readonly #undici: typeof Undici;
  readonly #proxyRoute: ProxyRoute | undefined;
  readonly #url: URL;
  readonly #options: ConnectionOptions;
  /** All connections that are open or being opened, including those to a proxy. */
  readonly #sockets = new Set<Socket>();
  /** All connections that were opened. A connection is removed when it closes, unless it received excess bytes. */
  readonly #establishedSockets = new Set<Socket>();
  #onConnected: ConnectionOptions['onConnected'];
  #isEnded = false;

  constructor(
    undici: typeof Undici,
    proxyRoute: ProxyRoute | undefined,
    url: URL,
    options: ConnectionOptions,
  ) {
    this.#undici = undici;
    this.#proxyRoute = proxyRoute;
    this.#url = url;
    this.#options = options;
    this.#onConnected = options.onConnected;
    const { timeoutMs: timeout, reusedBufferBytes: readsUpTo, within } = options;
    // Set explicitly, so that NODE_TLS_REJECT_UNAUTHORIZED cannot disable verification.
    const tls = { rejectUnauthorized: true, timeout };
    // Not used with TLS, because a TLS socket copies the bytes anyway when it decrypts them.
    const onread = readsUpTo && url.protocol === 'http:' ? reuseBuffers(readsUpTo) : undefined;
    const connect = { ...tls, onread, ...(within && { lookup: lookupWithin(within) }) };
    this.dispatcher =
      proxyRoute?.agent(proxyRoute.address, tls, {
        connect,
        factory: (origin: string | URL, { connect }: Pool.Options) =>
          this.#pool(origin, this.#openerFor(connect)),
        clientFactory: (origin: URL, { connect }: Pool.Options) =>
          this.#pool(origin, this.#track(connect as Connector)),
      }) ?? this.#pool(url.origin, this.#openerFor(connect));
  }

  /** Opens a connection for inspection. Sends nothing. The caller must destroy the connection. */
  connect(): Promise<Socket> {
    return new Promise((resolve, reject) => {
      this.#onConnected = (socket) => {
        resolve(socket);
        return new Promise<never>(() => undefined);
      };
      const request = { origin: this.#url.origin, path: '/', method: 'GET' } as const;
      const onResponseError = (): void => void this.first?.catch(reject);
      this.dispatcher.dispatch(request, { onRequestStart: () => undefined, onResponseError });
    });
  }

  /** The number of connections that received more bytes than a response announced. */
  get excessCount(): number {
    return [...this.#establishedSockets].filter(hasExcess).length;
  }

  /** Closes all connections and aborts their requests. */
  destroy(reason: Error): void {
    this.#isEnded = true;
    for (const socket of this.#sockets) socket.destroy(reason);
    // Destroyed after the sockets, because the sockets' errors describe a request's failure better.
    setImmediate(() => void this.dispatcher.destroy(reason));
  }

  // Creates the connection pool. Sets no timeouts for responses, because the caller limits the response time.
  #pool(origin: string | URL, connect: Connector): Client | Pool {
    const connections = this.#options.maxConnections;
    return new this.#undici[connections === 1 ? 'Client' : 'Pool'](origin, {
      connect,
      connections,
      pipelining: 1,
      maxHeaderSize: 64 * 1024,
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 30_000,
    });
  }

  // Returns a connector that records its sockets. (undici's types hide that a connector returns the socket.) Removes a
  // server name that is an IP address: undici sets one for a proxy, but TLS forbids it (RFC 6066 3), and Node 26
  // refuses it.
  #track(connector: Connector): Connector {
    return (target, callback) => {
      const isNamed = !target.servername || !isAddress(target.servername);
      const namedTarget = isNamed ? target : { ...target, servername: undefined };
      const socket = (connector as (...args: Parameters<Connector>) => Socket)(namedTarget, callback);
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    };
  }

  // Returns the function that undici calls to open a connection. For a direct connection, `connect` is an object of
  // options. For a tunnel, `connect` is the function that opens the tunnel.
  #openerFor(connect: Pool.Options['connect']): Connector {
    const isTunnel = typeof connect === 'function';
    const route = isTunnel ? this.#proxyRoute : undefined;
    this.proxy = route?.text ?? '';
    this.proxyProblem = route?.problem;
    const connector = isTunnel ? connect : this.#track(this.#undici.buildConnector(connect));
    return (target, callback) => {
      const opening = this.#open(route?.problem ? refuseWith(route.problem) : connector, target);
      this.first ??= opening;
      opening.then(
        (socket) => callback(null, socket),
        (error: unknown) => callback(error as Error, null),
      );
    };
  }

  async #open(connector: Connector, target: buildConnector.Options): Promise<Socket> {
    if (this.#isEnded || (this.#options.maxConnections === 1 && this.first !== undefined))
      throw TransportError.sent(new Error('mgw does not reopen it'), this.#url);
    const socket = await this.#connectSocket(connector, target);
    this.#establishedSockets.add(socket);
    socket.once('close', () => {
      if (!hasExcess(socket)) this.#establishedSockets.delete(socket);
    });
    this.#undici.repairHeads(socket);
    this.#guardEnd(socket);
    try {
      await this.#onConnected?.(socket);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    if (socket.destroyed) throw TransportError.sent(new Error('it was closed immediately'), this.#url);
    return socket;
  }

  // These listeners run before undici's own, which it adds to an open connection. If the connection's end also ends a
  // paused response, undici 7 crashes the process with an assertion (its issue 5360).
  #guardEnd(socket: Socket): void {
    const { kParser } = this.#undici;
    const parserSocket = socket as Socket & { [kParser]?: Undici.Parser | null };
    socket.once('end', () => parserSocket[kParser]?.resume());
    socket.on('error', () => {
      // Without this, undici would treat a reset as the normal end of a response that ends with its connection.
      if (parserSocket[kParser]) parserSocket[kParser].shouldKeepAlive = true;
    });
  }

  async #connectSocket(connector: Connector, target: buildConnector.Options): Promise<Socket> {
    const { timeoutMs, within, signals } = this.#options;
    const deadline = startLimit(timeoutMs, signals);
    const host = hostOf(this.#url);
    try {
      if (within && !(await isWithinReach(host, within))) throw privateAddressError(host);
      return await connectAsync(connector, { ...target, signal: deadline.signal });
    } catch (error) {
      throw this.#connectError(error, deadline);
    } finally {
      deadline.end();
    }
  }

  #connectError(error: unknown, deadline: CallLimit): TransportError {
    const { timeoutMs, maxConnections } = this.#options;
    if (deadline.signal.aborted && maxConnections === 1) this.destroy(new Error('it was abandoned'));
    // Only a connection without TLS that was accepted can be reset here. Whether the system reports the reset here or
    // after the first byte is a matter of chance, and must not affect the outcome.
    const isReset = systemCode(error) === 'ECONNRESET' && this.#url.protocol === 'http:' && this.proxy === '';
    if (isReset) return TransportError.sent(error, this.#url);
    const [, status] = /^Proxy response \((\d+)\)/.exec(messageOf(error)) ?? [];
    const message = deadline.hasPassed
      ? `no connection to ${this.#url.host} within ${timeoutMs / 1000} s`
      : status && `the proxy refused the tunnel with HTTP ${status}`;
    const cause = message ? new Error(message, { cause: error }) : error;
    return TransportError.unsent(cause, this.#url, this.proxyProblem ? '' : this.proxy);
  }
}

// A host in NO_PROXY does not use the proxy, so the proxy's problem is an error only if a tunnel is opened.
function refuseWith(problem: Error): Connector {
  return (_target, callback) => callback(problem, null);
}

const hasExcess = ({ errored }: Socket): boolean => errored?.message === 'bad response';

// Opens a connection, and aborts on the signal. (undici's own connector ignores the signal, but its connector for
// tunnels does not.)
function connectAsync(
  connector: Connector,
  target: buildConnector.Options & { signal: AbortSignal },
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    target.signal.throwIfAborted();
    const onAbort = (): void => reject(new Error(messageOf(target.signal.reason)));
    target.signal.addEventListener('abort', onAbort, { once: true });
    connector(target, (error, socket) => (error === null ? resolve(socket) : reject(error)));
  });
}
