import type { buildConnector, Client, Dispatcher, Pool } from 'undici';
import type { Readable } from 'node:stream';
import { messageOf, systemCode } from '../errors.ts';
import { startLimit, type CallLimit } from './deadline.ts';
import { hostOf, proxyFor } from './proxy.ts';
import type * as ProxyAgent from './proxy-agent.ts';
import { isAddress, isWithinReach, lookupWithin, outOfReach } from './reach.ts';
import { intoReusedBuffers } from '../files/reused-buffers.ts';
import { TransportError } from './transport-error.ts';
import type * as Undici from './undici.ts';

type Connector = buildConnector.connector;
/** A proxy's address, and what makes the connections through one. */
type Through = { address: string; agent: typeof ProxyAgent.proxyAgent };

/** An open connection: TCP, or TLS over it. */
export type Socket = NonNullable<Parameters<buildConnector.Callback>[1]>;

/** How connections are made. */
export interface ConnectionOptions {
  /** Time limit for connecting, TLS included, ms. */
  timeoutMs: number;
  /** Maximum number of connections. If it is 1, that connection is made once and never again. */
  most: number;
  /** Much is read on them, up to so many bytes at a time: a plain one reads into memory that is used again. */
  readsUpTo?: number | undefined;
  /** Refuses addresses that are not within reach of this base URL, also those that DNS gives. */
  within?: URL;
  /** Ends the making of a connection, and of nothing else. */
  signals?: readonly (AbortSignal | undefined)[];
  /**
   * Runs when a connection is open, before the first byte of a request. What it throws ends the call as it is:
   * nothing was sent.
   */
  onConnected?: (socket: Socket) => Promise<void>;
}

/**
 * Prepares connections to the origin of a URL; the first request makes one. They go through the environment's proxy
 * if one is set, by a tunnel (never for loopback), with TLS verified for https.
 * @throws TransportError `unsent` if the environment's proxy cannot be used.
 */
export async function openConnections(url: URL, options: ConnectionOptions): Promise<Connections> {
  try {
    // Loaded on demand: no local command needs it, and few commands need proxies.
    const address = proxyFor(url);
    const agent = address && (await import('./proxy-agent.ts')).proxyAgent;
    return new Connections(await import('./undici.ts'), agent ? { address, agent } : undefined, url, options);
  } catch (error) {
    throw TransportError.unsent(error, url);
  }
}

/** The connections to one origin. */
export class Connections {
  /** Sends requests on them; pipelines, retries and redirects none. */
  readonly dispatcher: Dispatcher;
  /**
   * The first connection, once it is begun. It is rejected with what kept it from standing: TransportError `unsent`
   * (no byte of a request was sent), or `sent` if a plain connection was accepted and reset at once, or what
   * `onConnected` threw.
   */
  first: Promise<Socket> | undefined;
  /** The proxy that they go through, '' for none; known once the first is begun. */
  proxy = '';
  readonly #undici: typeof Undici;
  readonly #through: Through | undefined;
  readonly #url: URL;
  readonly #options: ConnectionOptions;
  /** All that are open or under way, those to a proxy among them. */
  readonly #sockets = new Set<Socket>();
  /** Connections that were opened: until they are closed, or for good if they had excess bytes. */
  readonly #stood = new Set<Socket>();
  #onConnected: ConnectionOptions['onConnected'];
  #isEnded = false;

  constructor(undici: typeof Undici, through: Through | undefined, url: URL, options: ConnectionOptions) {
    this.#undici = undici;
    this.#through = through;
    this.#url = url;
    this.#options = options;
    this.#onConnected = options.onConnected;
    const { timeoutMs: timeout, readsUpTo, within } = options;
    // In so many words, so that NODE_TLS_REJECT_UNAUTHORIZED cannot turn it off.
    const tls = { rejectUnauthorized: true, timeout };
    // What TLS gives has been copied already.
    const onread = readsUpTo && url.protocol === 'http:' ? intoReusedBuffers(readsUpTo) : undefined;
    const connect = { ...tls, onread, ...(within && { lookup: lookupWithin(within) }) };
    this.dispatcher =
      through?.agent(through.address, tls, {
        connect,
        factory: (origin: string | URL, { connect }: Pool.Options) =>
          this.#pool(origin, this.#standing(connect)),
        clientFactory: (origin: URL, { connect }: Pool.Options) =>
          this.#pool(origin, this.#tracked(connect as Connector)),
      }) ?? this.#pool(url.origin, this.#standing(connect));
  }

  /** Opens a connection for inspection: nothing is sent on it, and the caller destroys it. */
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

  /** On how many of them more came than an answer had announced. */
  get excesses(): number {
    return [...this.#stood].filter(hasExcess).length;
  }

  /** Closes them all at once, and aborts their requests. */
  destroy(reason: Error): void {
    this.#isEnded = true;
    for (const socket of this.#sockets) socket.destroy(reason);
    // After the sockets, which know better what became of a request.
    setImmediate(() => void this.dispatcher.destroy(reason));
  }

  // How long an answer may take is the caller's matter.
  #pool(origin: string | URL, connect: Connector): Client | Pool {
    const connections = this.#options.most;
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

  // undici's types hide that it gives the socket at once. It names a proxy's address to the proxy, which TLS has no
  // room for (RFC 6066 3), and Node 26 refuses.
  #tracked(connector: Connector): Connector {
    return (target, callback) => {
      const isNamed = !target.servername || !isAddress(target.servername);
      const named = isNamed ? target : { ...target, servername: undefined };
      const socket = (connector as (...args: Parameters<Connector>) => Socket)(named, callback);
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    };
  }

  // A direct connection is given by its options, a tunnel by the function that digs it.
  #standing(connect: Pool.Options['connect']): Connector {
    const isTunnel = typeof connect === 'function';
    if (isTunnel) this.proxy = this.#through?.address ?? '';
    const connector = isTunnel ? connect : this.#tracked(this.#undici.buildConnector(connect));
    return (target, callback) => {
      const standing = this.#stand(connector, target);
      this.first ??= standing;
      standing.then(
        (socket) => callback(null, socket),
        (error: unknown) => callback(error as Error, null),
      );
    };
  }

  async #stand(connector: Connector, target: buildConnector.Options): Promise<Socket> {
    if (this.#isEnded || (this.#options.most === 1 && this.first !== undefined))
      throw TransportError.sent(new Error('it is not made again'), this.#url);
    const socket = await this.#connected(connector, target);
    this.#stood.add(socket);
    socket.once('close', () => {
      if (!hasExcess(socket)) this.#stood.delete(socket);
    });
    if (this.#options.most === 1) mendHead(socket);
    this.#mendEnd(socket);
    try {
      await this.#onConnected?.(socket);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    if (socket.destroyed) throw TransportError.sent(new Error('it was closed at once'), this.#url);
    return socket;
  }

  // These listeners come before undici's own, which it adds to an open connection. If an answer may end with its
  // connection, and waits for its reader, undici 7 crashes the process by an assertion (its issue 5360).
  #mendEnd(socket: Socket): void {
    const { kParser } = this.#undici;
    const parsed = socket as Socket & { [kParser]?: Undici.Parser | null };
    socket.once('end', () => parsed[kParser]?.resume());
    socket.on('error', () => {
      // It takes a reset for the end of such an answer as well.
      if (parsed[kParser]) parsed[kParser].shouldKeepAlive = true;
    });
  }

  async #connected(connector: Connector, target: buildConnector.Options): Promise<Socket> {
    const { timeoutMs, within, signals } = this.#options;
    const deadline = startLimit(timeoutMs, signals);
    const host = hostOf(this.#url);
    try {
      if (within && !(await isWithinReach(host, within))) throw outOfReach(host);
      return await promised(connector, { ...target, signal: deadline.signal });
    } catch (error) {
      throw this.#notConnected(error, deadline);
    } finally {
      deadline.end();
    }
  }

  #notConnected(error: unknown, deadline: CallLimit): TransportError {
    const { timeoutMs, most } = this.#options;
    if (deadline.signal.aborted && most === 1) this.destroy(new Error('it was given up'));
    // Only a plain connection that was accepted can be reset. Whether the system tells so here or after the first byte
    // is chance, and an outcome must not be.
    const isReset = systemCode(error) === 'ECONNRESET' && this.#url.protocol === 'http:' && this.proxy === '';
    if (isReset) return TransportError.sent(error, this.#url);
    const [, status] = /^Proxy response \((\d+)\)/.exec(messageOf(error)) ?? [];
    const words = deadline.passed
      ? `no connection to ${this.#url.host} within ${timeoutMs / 1000} s`
      : status && `the proxy ${new URL(this.proxy).host} refused the tunnel with HTTP ${status}`;
    return TransportError.unsent(words ? new Error(words, { cause: error }) : error, this.#url);
  }
}

const hasExcess = ({ errored }: Socket): boolean => errored?.message === 'bad response';

// undici's own connector does not know of the signal; the one that digs a tunnel does.
function promised(
  connector: Connector,
  target: buildConnector.Options & { signal: AbortSignal },
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    target.signal.throwIfAborted();
    const aborted = (): void => reject(new Error(messageOf(target.signal.reason)));
    target.signal.addEventListener('abort', aborted, { once: true });
    connector(target, (error, socket) => (error === null ? resolve(socket) : reject(error)));
  });
}

/** So much of a head is looked at, bytes; undici refuses a longer one. */
const maxBytes = 64 * 1024;
const headEnd = /\r?\n\r?\n/;

/**
 * Lets undici read two heads of an answer that it refuses, on a connection that is for one answer: it may tell the
 * handle of what was paid. An unrequested `100 Continue` is skipped (RFC 9110 15.2.1), and if a body has
 * both a length and chunks, the chunks count (RFC 9112 6.3).
 */
function mendHead(socket: Readable): void {
  let head = '';
  const read = socket.read.bind(socket) as () => Buffer | null;
  // undici takes the bytes by this method. Latin-1 keeps each of them as it is.
  socket.read = () => {
    // Node 26 gives one chunk each time.
    for (let chunk = read(); chunk !== null; chunk = read()) head += chunk.toString('latin1');
    while (/^HTTP\/1\.[01] 100\b/.test(head) && headEnd.test(head)) head = head.slice(endOf(head));
    const isHead = 'HTTP/1.'.startsWith(head.slice(0, 7));
    if (isHead && head.length < maxBytes && !headEnd.test(head)) return null;
    socket.read = read;
    return Buffer.from(isHead ? mended(head) : head, 'latin1');
  };
}

function endOf(text: string): number {
  const found = headEnd.exec(text);
  return found === null ? text.length : found.index + found[0].length;
}

function mended(text: string): string {
  const head = text.slice(0, endOf(text));
  if (!/^transfer-encoding:/im.test(head)) return text;
  return head.replace(/^content-length:.*\r?\n/gim, '') + text.slice(head.length);
}
