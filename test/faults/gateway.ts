import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Certificate } from '../support/certificates.ts';
import { film } from '../support/film.ts';
import { serve, type Served } from '../support/raw-server.ts';
import { type Area, dialects, type Dialect, type Seen, type Step } from './dialects.ts';
import { framesOf } from './frames.ts';
import { listen, type Listener, type OnTcp } from './listener.ts';

/** A request whose response is pending. */
export interface Call extends Seen {
  response: ServerResponse;
  socket: Socket;
  gateway: FaultGateway;
}

/** A scripted response: the content, or a function that controls the connection. */
export type Answer =
  | { status?: number; body?: unknown; headers?: Record<string, string | string[]> }
  | ((call: Call) => unknown);

/** Options of a {@link FaultGateway}. */
export interface GatewayOptions {
  protocol: Area;
  host?: string;
  tls?: Certificate;
  video?: Buffer;
  /** The address of Protocol B's file host (default: 127.0.0.1). */
  filesAt?: string;
}

/**
 * A gateway that implements one protocol according to the specification, and counts the tasks that it creates. A script
 * can replace any response.
 */
export class FaultGateway {
  readonly dialect: Dialect;
  readonly seen: Seen[] = [];
  /** The handles of the tasks that were created and charged. */
  readonly created: string[] = [];
  /**
   * The next responses to each kind of request, in order. Afterwards `always` applies, or else the default response.
   */
  readonly script: Record<Step, Answer[]> = { submit: [], query: [], content: [], other: [] };
  /** Faults of the next connections, below TLS and HTTP. Later connections are served as usual. */
  readonly onTcp: OnTcp[] = [];
  readonly always: Partial<Record<Step, Answer>> = {};
  /** How often a task is reported as running before it is finished. */
  polls = 1;
  /** Returns the members of a finished task (default: one result with its own URL). */
  succeeded: Dialect['succeeded'];
  /** The result, and how it is served. */
  served: Served;
  /** The number of result bytes sent so far. */
  sent = 0;
  readonly #polled = new Map<string, number>();
  #main: Listener | undefined;
  #files: Listener | undefined;

  private constructor(options: GatewayOptions) {
    this.dialect = dialects[options.protocol];
    this.succeeded = this.dialect.succeeded;
    this.served = { content: options.video ?? film(4096), etag: '"one"' };
  }

  static async start(options: GatewayOptions): Promise<FaultGateway> {
    const gateway = new FaultGateway(options);
    const answer = (request: IncomingMessage, response: ServerResponse): void =>
      void gateway.#answer(request, response);
    gateway.#main = await listen({ ...options, onTcp: gateway.onTcp, answer });
    // Protocol B's files are on a separate host, which must never receive a key (specification 4.2).
    if (options.protocol === 'b') gateway.#files = await listen({ host: options.filesAt, answer });
    return gateway;
  }

  get url(): string {
    return this.#main?.origin ?? '';
  }

  get main(): Listener {
    if (this.#main === undefined) throw new Error('the gateway is not listening');
    return this.#main;
  }

  /** The base URL of result files. */
  get filesUrl(): string {
    return this.#files?.origin ?? this.url;
  }

  get submissions(): Seen[] {
    return this.seen.filter(({ step }) => step === 'submit');
  }

  /** Creates a task, as an accepted submission does, and returns its handle. */
  create(handle = this.dialect.handle(this.created.length + 1)): string {
    this.created.push(handle);
    return handle;
  }

  /** Creates a task, and returns the text of the response that reports it. */
  accept(): string {
    return JSON.stringify(this.dialect.accepted(this.create()));
  }

  /** Starts a speech stream, and sends the given data. The gateway charges for the stream when it starts. */
  speak(response: ServerResponse, stream: readonly (string | Buffer)[], isWhole = true): void {
    response.writeHead(200, { 'content-type': 'application/json', 'x-tt-logid': this.create() });
    for (const piece of stream) response.write(piece);
    if (isWhole) response.end();
  }

  async close(): Promise<void> {
    await Promise.all([this.#main?.stop(), this.#files?.stop()]);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url: path = '', socket } = request;
    const headers = request.headers as Record<string, string>;
    const step = this.dialect.stepOf({ method, path, headers });
    const seen: Seen = { step, method, path, headers, body: '', at: Date.now() };
    this.seen.push(seen);
    seen.body = await bodyOf(request);
    const scripted = this.script[step].shift() ?? this.always[step];
    const call: Call = Object.assign(Object.create(seen) as Seen, { response, socket, gateway: this });
    if (typeof scripted === 'function') await scripted(call);
    else if (scripted !== undefined) reply(response, scripted);
    else this.#usual(call);
  }

  #usual(call: Call): void {
    const { step, response } = call;
    if (step === 'submit' && this.dialect === dialects.tts)
      this.speak(response, framesOf(this.served.content));
    else if (step === 'submit') reply(response, { body: this.accept() });
    else if (step === 'query') this.#show(call);
    else if (step === 'content') this.sent += serve(call, call.socket, this.served);
    else if (call.path === '/v1/models') reply(response, { body: listing });
    else reply(response, { status: 404, body: { error: { message: `Invalid URL (${call.path})` } } });
  }

  #show(call: Call): void {
    const handle = this.dialect.queriedHandle(call);
    const isKnown = this.created.includes(handle);
    reply(call.response, isKnown ? { body: this.shown(handle) } : this.dialect.missing);
  }

  /** Returns a task as the next query reports it. */
  shown(handle: string): object {
    const polls = (this.#polled.get(handle) ?? 0) + 1;
    this.#polled.set(handle, polls);
    if (polls <= this.polls) return this.dialect.running(handle);
    return this.succeeded(handle, `${this.filesUrl}/files/${polls}`);
  }
}

const listing = { data: [{ id: 'Video-B', model_versions: ['2.0'] }] };

/** Sends a response with a JSON body. A string is sent unchanged. */
export function reply(response: ServerResponse, answer: Exclude<Answer, (call: Call) => unknown>): void {
  const { status = 200, body = {}, headers = {} } = answer;
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request) chunks.push(chunk as Buffer);
  } catch {
    // The client has disconnected. Returns the part of the body that has arrived.
  }
  return Buffer.concat(chunks).toString();
}
