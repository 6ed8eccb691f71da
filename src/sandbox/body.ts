import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { isIPv4 } from 'node:net';
import { gatewayError, type Call, RefusedCall } from './exchange.ts';
import { isObject, parseJson } from './state.ts';

/** The maximum size of a request body, in bytes: enough for a 20 MB image in Base64 and the other fields. */
export const maxBodyBytes = 32 * 1024 * 1024;

/**
 * Returns a request's body. Rejects with RefusedCall (HTTP 413) as soon as the body exceeds maxBodyBytes. The rest is
 * then read and discarded, because a client that is still writing would not read the response.
 */
export function readBody(message: IncomingMessage): Promise<Buffer> {
  let pieces: Buffer[] = [];
  let length = 0;
  return new Promise((resolve, reject) => {
    const refuse = (): void => {
      pieces = [];
      reject(tooLargeError());
    };
    if (Number(message.headers['content-length'] ?? 0) > maxBodyBytes) refuse();
    message.on('data', (piece: Buffer) => {
      length += piece.length;
      if (length > maxBodyBytes) refuse();
      else pieces.push(piece);
    });
    message.on('end', () => resolve(Buffer.concat(pieces)));
    message.on('error', reject);
  });
}

/**
 * Returns the body as a JSON object; undefined if the body is not a JSON object in valid UTF-8.
 * @throws RefusedCall (HTTP 400) if the JSON is nested too deeply
 */
export function jsonObject(call: Call): Record<string, unknown> | undefined {
  const value = isUtf8(call.body) ? parseJson(call.body.toString('utf8')) : undefined;
  if (!isShallow(value)) throw new RefusedCall(gatewayError(400, 'The JSON is nested too deeply'));
  return isObject(value) ? value : undefined;
}

/** Parses JSON text inside a body; undefined if the text is not JSON or is nested too deeply. */
export function parseBounded(text: string): unknown {
  const value = parseJson(text);
  return isShallow(value) ? value : undefined;
}

const maxDepth = 100;

/**
 * Whether a value is nested no deeper than allowed. Checks level by level, because recursion over deeply nested JSON
 * could overflow the stack.
 */
function isShallow(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) return false;
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? (Object.values(item) as unknown[]) : [],
    );
  }
  return true;
}

/** Whether the request declares a JSON body (specification 4.3, 5). */
export function declaresJson(call: Call): boolean {
  return /^application\/json\s*(;|$)/i.test(call.headers['content-type'] ?? '');
}

// Returns the refusal of a body that is too large. Leaves the connection open, because closing it while the client is
// writing would reset the connection and lose the response.
function tooLargeError(): RefusedCall {
  const message = `The request body exceeds ${maxBodyBytes} bytes`;
  const reply = gatewayError(413, message, { code: 'read_request_body_failed' });
  return new RefusedCall({ ...reply, headers: { ...reply.headers, Connection: 'keep-alive' } });
}

/** Whether a value is an absolute `http:` or `https:` URL without credentials. */
export function isHttpUrl(value: unknown): value is string {
  if (typeof value !== 'string' || !URL.canParse(value)) return false;
  const { protocol, username, password } = new URL(value);
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === '';
}

/** Whether a URL is unreachable from the public internet (specification 8). */
export function isUnreachable(url: string): boolean {
  const { hostname } = new URL(url);
  const isName = !isIPv4(hostname) && !hostname.startsWith('[');
  if (isName)
    return !hostname.includes('.') || /\.(localhost|local|internal|test|invalid)\.?$/.test(hostname);
  return isIPv4(hostname) ? privateIpv4.test(hostname) : privateIpv6.test(hostname);
}

const privateIpv4 =
  /^(0|10|127|169\.254|192\.168|172\.(1[6-9]|2\d|3[01])|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7]))\./;
const privateIpv6 = /^\[(::1?\]|::ffff:|f[cd]|fe[89ab])/;
