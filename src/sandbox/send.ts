import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Reply } from './exchange.ts';

/**
 * Sends an answer as it is described, breaks and stalls included. Resolves when it is sent, broken, or the client
 * has left; rejects where a streamed body throws.
 */
export async function sendReply(
  message: IncomingMessage,
  response: ServerResponse,
  reply: Reply,
): Promise<void> {
  const left = new AbortController();
  response.once('close', () => left.abort());
  if (reply.delayMs !== undefined) await pause(reply.delayMs, left.signal);
  if (reply.cutAt === -1 || left.signal.aborted) return void response.destroy();
  response.writeHead(reply.status, headOf(reply));
  if (message.method === 'HEAD') return void response.end();
  if (typeof reply.body === 'string' || reply.body instanceof Uint8Array) sendWhole(response, reply);
  else await sendStream(response, reply, reply.body, left.signal);
}

function headOf({ headers, body }: Reply): Record<string, string> {
  const streamed = typeof body !== 'string' && !(body instanceof Uint8Array);
  return streamed ? headers : { ...headers, 'Content-Length': String(Buffer.byteLength(body)) };
}

function sendWhole(response: ServerResponse, reply: Reply): void {
  const bytes = Buffer.from(reply.body as string | Uint8Array);
  const { cutAt, stallAt } = reply;
  if (cutAt !== undefined) response.write(bytes.subarray(0, cutAt), () => response.destroy());
  else if (stallAt !== undefined) response.write(bytes.subarray(0, stallAt));
  else response.end(bytes, () => reply.sent?.());
}

async function sendStream(
  response: ServerResponse,
  reply: Reply,
  body: AsyncIterable<Uint8Array>,
  left: AbortSignal,
): Promise<void> {
  let sent = 0;
  for await (const piece of body) {
    if (left.aborted) return;
    const room = (reply.cutAt ?? Infinity) - sent;
    const flowing = response.write(piece.subarray(0, room));
    if (room <= piece.length) return void response.destroy();
    sent += piece.length;
    if (!flowing) await once(response, 'drain', { signal: left }).catch(() => undefined);
  }
  response.end(() => reply.sent?.());
}

async function pause(ms: number, left: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal: left }).catch(() => undefined);
}
