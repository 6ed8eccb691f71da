import { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import type { Dispatcher } from 'undici';
import type { System } from './program.ts';

/** An event of a connection or a request. */
export type NetworkEvent =
  | { kind: 'open' }
  | { kind: 'head'; status: number; headers: Record<string, string> }
  | { kind: 'data'; bytes: Uint8Array }
  | { kind: 'end' };

class Socket extends EventEmitter {
  destroyed = false;
  errored: Error | undefined;
  read = (): null => null;
  write = (): boolean => true;

  destroy(error?: Error): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.emit('gone', error);
    process.nextTick(() => this.emit('close'));
  }
}

type Connect = (target: object, done: (error: Error | null, socket: Socket | null) => void) => void;

/** Returns undici's client and connector, implemented on the machine's network. */
export function network(system: System): Record<string, unknown> {
  const connector = (): Connect => (_target, done) => {
    const socket = new Socket();
    const end = system.begin('connect', [], (_, error) => done(error ?? null, error ? null : socket));
    socket.once('gone', end);
    return socket;
  };
  class Client {
    readonly #connect: Connect;
    #socket: Socket | undefined;

    constructor(
      readonly origin: string | URL,
      { connect }: { connect: Connect },
    ) {
      this.#connect = system.isHookless() ? connector() : connect;
    }

    dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
      const sendOn = (socket: Socket): void => {
        this.#socket = socket;
        send(system, new URL(this.origin).origin, request, handler, socket);
      };
      if (this.#socket !== undefined && !this.#socket.destroyed) sendOn(this.#socket);
      else
        this.#connect({ origin: request.origin, port: '9' }, (error, socket) => {
          if (socket !== null) sendOn(socket);
          else
            handler.onResponseError?.(
              controllerOf(() => undefined),
              error ?? new Error('no connection'),
            );
        });
      return true;
    }

    destroy(reason?: Error): Promise<void> {
      this.#socket?.destroy(reason);
      return Promise.resolve();
    }
  }
  const module = (exported: unknown): object => Object.assign(exported as object, { default: exported });
  return {
    'undici/lib/core/connect.js': module(connector),
    'undici/lib/core/symbols.js': module({ kParser: Symbol('parser') }),
    'undici/lib/dispatcher/client.js': module(Client),
    'undici/lib/dispatcher/pool.js': module(class extends Client {}),
    'undici/lib/dispatcher/dispatcher.js': {},
    'undici/lib/dispatcher/env-http-proxy-agent.js': {},
    'undici/lib/api/api-connect.js': {},
    'ipaddr.js': createRequire(import.meta.url)('ipaddr.js') as unknown,
  };
}

type Controller = Dispatcher.DispatchController & { aborted: boolean };

function controllerOf(abort: (reason: Error) => void): Controller {
  const controller = {
    aborted: false,
    paused: false,
    reason: null,
    rawHeaders: null,
    rawTrailers: null,
    pause: () => undefined,
    resume: () => undefined,
    abort: (reason: Error) => {
      if (controller.aborted) return;
      controller.aborted = true;
      abort(reason);
    },
  };
  return controller;
}

function send(
  system: System,
  origin: string,
  { method, path, headers, body }: Dispatcher.DispatchOptions,
  handler: Dispatcher.DispatchHandler,
  socket: Socket,
): void {
  let isOver = false;
  let end = (): void => undefined;
  const fail = (error: Error): void => {
    if (isOver) return;
    isOver = true;
    end();
    handler.onResponseError?.(controller, error);
  };
  const controller = controllerOf(fail);
  try {
    handler.onRequestStart?.(controller, {});
  } catch (error) {
    controller.abort(error as Error);
  }
  if (isOver) return;
  const text = body === undefined || body === null ? '' : Buffer.from(body as string).toString();
  socket.once('gone', (error?: Error) => fail(error ?? new Error('the connection was closed')));
  end = system.begin('request', [method, path, headers, text, origin], (value, error) => {
    if (isOver) return;
    if (error !== undefined) {
      fail(error);
      return;
    }
    const event = value as NetworkEvent;
    if (event.kind === 'head') handler.onResponseStart?.(controller, event.status, event.headers, '');
    else if (event.kind === 'data') handler.onResponseData?.(controller, Buffer.from(event.bytes));
    else if (event.kind === 'end') {
      isOver = true;
      end();
      handler.onResponseEnd?.(controller, {});
    }
  });
}
