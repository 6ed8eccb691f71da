import type { IncomingMessage, ServerResponse } from 'node:http';
import { gatewayError } from './envelopes.ts';
import type { Reply } from './exchange.ts';
import { isForeign } from './guard.ts';
import { listenOnLoopback, type Listener } from './loopback-server.ts';
import { sendReply } from './send.ts';

/** A request as it arrived: `path` and `query` are still percent-encoded. */
export interface Request {
  method: string;
  path: string;
  query: string;
  message: IncomingMessage;
}

/**
 * Listens on 127.0.0.1 (port 0 chooses a free one) and answers each request with what `handle` makes of it, after
 * refusing those of web pages and foreign host names with HTTP 403. An error of `handle` becomes HTTP 500.
 * Rejects with the system's error where the port cannot be had. With `unref` it keeps no process alive.
 */
export function listen(
  port: number,
  handle: (request: Request) => Promise<Reply>,
  options: { unref?: boolean | undefined } = {},
): Promise<Listener> {
  return listenOnLoopback(
    port,
    (message, response, origin) => void serve(message, response, origin, handle),
    options,
  );
}

async function serve(
  message: IncomingMessage,
  response: ServerResponse,
  origin: string,
  handle: (request: Request) => Promise<Reply>,
): Promise<void> {
  const reply = isForeign(message.headers, origin)
    ? gatewayError(403, 'The sandbox answers only programs on this machine, under its own address.')
    : await handle(requestOf(message)).catch(crashed);
  await sendReply(message, response, reply).catch(() => response.destroy());
}

function requestOf(message: IncomingMessage): Request {
  const target = message.url ?? '/';
  const mark = target.indexOf('?');
  const [path, query] = mark < 0 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
  return { method: message.method ?? 'GET', path, query, message };
}

function crashed(error: unknown): Reply {
  const message = error instanceof Error ? error.message : String(error);
  return gatewayError(500, `The sandbox failed: ${message}`, { code: 'sandbox_error' });
}
