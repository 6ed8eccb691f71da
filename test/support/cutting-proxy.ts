import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { onEnd } from './clean-ups.ts';

/** The point at which a {@link CuttingProxy} cuts a connection, and the data that is lost. */
export interface Cut {
  /** Matches the message at which the connection is cut: a statement's text or its bound values. */
  at: RegExp;
  /**
   * The lost data. `message`: the server never receives the message. `answer`: the server executes the message, but the
   * response is lost. `patience`: the proxy holds the response until the client closes the connection, and then behaves
   * as after {@link CuttingProxy.down}.
   */
  lose: 'message' | 'answer' | 'patience';
}

/** A client's connection through the proxy. */
interface Pair {
  client: Socket;
  server: Socket;
  /**
   * Set if the response to the last forwarded message is not forwarded. The connection is cut at the end of that
   * response (`answer`) or by the client (`patience`).
   */
  losing?: 'answer' | 'patience';
  /** Messages that arrived while the proxy was paused. */
  held: Buffer[];
}

/**
 * A proxy in front of PostgreSQL or PgBouncer that parses enough of the protocol to cut connections at critical points.
 * Does not support TLS.
 */
export class CuttingProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #pairs = new Set<Pair>();
  #cut: { cut: Cut; done: () => void } | undefined;
  #watch: { at: RegExp; seen: () => void } | undefined;
  #isDown = false;
  #isHeld = false;
  #delayMs = 0;

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#connected(client));
  }

  /** Opens a proxy on 127.0.0.1 until the test ends. `target` is the server's port on that address. */
  static async open(target: number): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    onEnd(() => proxy.close());
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Cuts the first connection that reaches the given point. Resolves when the connection is cut. */
  cutAt(cut: Cut): Promise<void> {
    return new Promise((done) => (this.#cut = { cut, done }));
  }

  /** Calls `seen` once, immediately before the first matching message is forwarded. */
  before(at: RegExp, seen: () => void): void {
    this.#watch = { at, seen };
  }

  /** Resets all connections except `but`, and accepts new ones. */
  cutAll(but?: Pair): void {
    for (const pair of this.#pairs) if (pair !== but) this.#destroy(pair);
  }

  /** Resets all connections except `but`, and every new one, until {@link up} is called. */
  down(but?: Pair): void {
    this.#isDown = true;
    this.cutAll(but);
  }

  /** Forwards everything again, including held messages. */
  up(): void {
    this.#isDown = false;
    this.#isHeld = false;
    for (const { client, server, held } of this.#pairs) {
      for (const message of held.splice(0)) server.write(message);
      client.resume();
      server.resume();
    }
  }

  /** Forwards nothing and closes nothing until {@link up} is called, like a partitioned network. */
  hold(): void {
    this.#isHeld = true;
    for (const { client, server } of this.#pairs) {
      client.pause();
      server.pause();
    }
  }

  /** Delays each further server response by `ms` milliseconds. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  /** Ends the streams to all clients, but still accepts data from them. */
  halfClose(): void {
    for (const { client } of this.#pairs) client.end();
  }

  close(): Promise<void> {
    this.cutAll();
    return new Promise((resolve) => void this.#server.close(() => resolve()));
  }

  #connected(client: Socket): void {
    if (this.#isDown) {
      client.on('error', () => undefined).resetAndDestroy();
      return;
    }
    const server = connect({ port: this.#target, host: '127.0.0.1', allowHalfOpen: true });
    const pair: Pair = { client, server, held: [] };
    this.#pairs.add(pair);
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on('error', () => this.#destroy(pair)).on('close', () => this.#destroy(pair));
      if (this.#isHeld) socket.pause();
    }
    const requests = new Messages((message, isFirst) => this.#asked(pair, message, isFirst), true);
    const answered = new Messages((message) => this.#answered(pair, message), false);
    client.on('data', (bytes) => requests.add(bytes)).on('end', () => server.end());
    server.on('data', (bytes) => answered.add(bytes)).on('end', () => client.end());
  }

  #asked(pair: Pair, message: Buffer, isFirst: boolean): void {
    if (isFirst && asksForEncryption(message)) {
      pair.client.write('N');
      return;
    }
    const wanted = this.#cut;
    if (this.#watch?.at.test(message.toString('latin1')) === true) {
      const { seen } = this.#watch;
      this.#watch = undefined;
      seen();
    }
    if (this.#isHeld) {
      pair.held.push(message);
      return;
    }
    if (isFirst || wanted === undefined || !'QPB'.includes(String.fromCharCode(message[0] ?? 0))) {
      pair.server.write(message);
      return;
    }
    const text = message.toString('latin1', 5);
    const { at, lose } = wanted.cut;
    if (at.test(text)) {
      this.#cut = undefined;
      if (lose === 'message') this.#destroy(pair);
      else pair.losing = lose;
      if (lose === 'patience') this.down(pair);
      void new Promise<void>((resolve) => pair.client.once('close', () => resolve())).then(wanted.done);
    }
    if (!pair.server.destroyed) pair.server.write(message);
  }

  #answered(pair: Pair, message: Buffer): void {
    const isReady = message[0] === 'Z'.charCodeAt(0);
    if (pair.losing === 'answer' && isReady) this.#destroy(pair);
    if (pair.losing !== undefined || pair.client.destroyed) return;
    if (this.#delayMs > 0) setTimeout(() => pair.client.write(message), this.#delayMs);
    else pair.client.write(message);
  }

  #destroy(pair: Pair): void {
    if (!this.#pairs.delete(pair)) return;
    pair.client.resetAndDestroy();
    pair.server.resetAndDestroy();
  }
}

// Whether a message is an SSLRequest or a GSSENCRequest.
function asksForEncryption(message: Buffer): boolean {
  return message.length === 8 && [80877103, 80877104].includes(message.readUInt32BE(4));
}

/** Splits a stream into protocol messages: a letter, a length and a body. */
class Messages {
  readonly #take: (message: Buffer, isFirst: boolean) => void;
  #bytes = Buffer.alloc(0);
  /** Whether the next message is a client's first message, which has no letter. */
  #isFirst: boolean;

  constructor(take: (message: Buffer, isFirst: boolean) => void, isFirst: boolean) {
    this.#take = take;
    this.#isFirst = isFirst;
  }

  add(bytes: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const head = this.#isFirst ? 0 : 1;
      if (this.#bytes.length < head + 4) return;
      const length = head + this.#bytes.readUInt32BE(head);
      if (this.#bytes.length < length) return;
      const message = this.#bytes.subarray(0, length);
      this.#bytes = this.#bytes.subarray(length);
      const isFirst = this.#isFirst;
      this.#isFirst &&= asksForEncryption(message);
      this.#take(message, isFirst);
    }
  }
}
