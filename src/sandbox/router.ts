import { randomBytes } from 'node:crypto';
import { authenticate } from './auth.ts';
import { readBody } from './body.ts';
import { invalidKey, unknownPath } from './envelopes.ts';
import type { Call, Gateway, Reply, Route } from './exchange.ts';
import { Refused } from './exchange.ts';
import { withFaults } from './fault-effects.ts';
import type { Request } from './listener.ts';

/**
 * Answers a request by the first route whose method and path fit: key, then faults, then the handler. `HEAD` goes
 * where `GET` goes. Every answer carries `X-Oneapi-Request-Id`.
 */
export async function answer(gateway: Gateway, routes: readonly Route[], request: Request): Promise<Reply> {
  const requestId = randomBytes(12).toString('hex');
  const reply = await route(gateway, routes, request, requestId).catch(refusal);
  return { ...reply, headers: { ...reply.headers, 'X-Oneapi-Request-Id': requestId } };
}

async function route(
  gateway: Gateway,
  routes: readonly Route[],
  request: Request,
  requestId: string,
): Promise<Reply> {
  const { method, path, message } = request;
  const found = routes.find(
    (candidate) => candidate.method === wanted(method) && candidate.pattern.test(path),
  );
  const body = await readBody(message);
  if (found === undefined) return unknownPath(method, path);
  const caller = authenticate(gateway.stateDir, found.auth, message.headers);
  if (caller === undefined) return invalidKey(requestId);
  const query = new URLSearchParams(request.query);
  const call: Call = { method, path, query, headers: message.headers, body, requestId, gateway, ...caller };
  return withFaults(call, found, async (faring) => found.handle(faring, ...groups(found.pattern, path)));
}

function wanted(method: string): string {
  return method === 'HEAD' ? 'GET' : method;
}

function groups(pattern: RegExp, path: string): string[] {
  return (pattern.exec(path)?.slice(1) ?? []).map(decode);
}

/** A group that is badly encoded names nothing: it is handed on as it came. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function refusal(error: unknown): Reply {
  if (error instanceof Refused) return error.reply;
  throw error;
}
