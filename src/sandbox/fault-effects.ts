import { createHash } from 'node:crypto';
import {
  actionError,
  gatewayError,
  insufficientQuota,
  invalidKey,
  taskNotFound,
  json,
  type Call,
  type Reply,
  type Route,
} from './exchange.ts';
import { spanOf } from './files.ts';
import { canStrike, FAULTS, type FaultHit, type FaultName } from './faults.ts';

/** A fault's effect on a call. Faults that determine the outcome of a task or stream are not listed here. */
interface Effect {
  /** Returns the response in place of the handler. */
  instead?: (call: Call, route: Route) => Reply;
  /** Returns the handler's response with changes. */
  change?: (reply: Reply, hit: FaultHit, call: Call) => Reply;
  /** Returns false if the fault would not change the response at this percentage. */
  fits?: (reply: Reply, percent: number) => boolean;
}

/**
 * Runs a handler with the sandbox's faults. If a fault refuses the call, the handler does not run. A fault that damages
 * a response applies only to successful responses, because a refused call has no effect.
 */
export async function withFaults(
  received: Call,
  route: Route,
  handle: (call: Call) => Promise<Reply>,
): Promise<Reply> {
  const kind = typeof route.kind === 'function' ? route.kind(received) : route.kind;
  const subject = `${received.path} ${createHash('sha256').update(received.body).digest('hex')}`;
  const call = withChance(received, received.gateway.chance({ kind, area: route.area, subject }));
  const names = FAULTS.filter((fault) => canStrike(fault, kind, route.area)).map(({ name }) => name);
  for (const name of names) {
    const instead = EFFECTS[name]?.instead;
    if (instead && call.gateway.take(name)) return instead(call, route);
  }
  const reply = await handle(call);
  const hadNoEffect = reply.status >= 300 || reply.refused || call.method === 'HEAD';
  return hadNoEffect ? reply : damaged(call, names, reply);
}

/** Returns the call with its random fault, if any, in addition to the configured faults. */
function withChance(call: Call, struck: FaultHit | undefined): Call {
  if (struck === undefined) return call;
  const { gateway } = call;
  const take: Call['gateway']['take'] = (name, fits) =>
    name === struck.name && (fits?.(struck.percent) ?? true) ? struck : gateway.take(name, fits);
  return { ...call, gateway: { ...gateway, take } };
}

function damaged(call: Call, names: readonly FaultName[], reply: Reply): Reply {
  for (const name of names) {
    const { change, fits } = EFFECTS[name] ?? {};
    const hit = change && call.gateway.take(name, (percent) => fits?.(reply, percent) ?? true);
    if (change && hit) return change(reply, hit, call);
  }
  return reply;
}

const page = (status: number, title: string): Reply => ({
  status,
  headers: { 'Content-Type': 'text/html; charset=utf-8' },
  body: `<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>`,
});
const badGateway = (): Reply => page(502, '502 Bad Gateway');
const busy = (status: number, message: string) => (call: Call) =>
  gatewayError(status, message, { requestId: call.requestId });
const limited = busy(429, 'Too many requests, please try again later');
const limitedFor = (call: Call): Reply => {
  const reply = limited(call);
  return { ...reply, headers: { ...reply.headers, 'Retry-After': '1' } };
};
const overloaded = busy(503, 'The upstream is overloaded');
const broken = busy(500, 'Internal server error');
const reset = (): Reply => ({ status: 500, headers: {}, body: '', cutAt: -1 });
const withBody = (reply: Reply, body: string): Reply => ({ ...reply, body, ended: undefined });
const garbled = (reply: Reply): Reply => withBody(reply, '{"id": "task_\u0000\u0001<<<');
const limitedAction = (call: Call): Reply =>
  actionError('RequestLimitExceeded', 'The request frequency exceeds the limit.', call.requestId);
const lengthOf = (reply: Reply): number => Buffer.byteLength(reply.body as string | Uint8Array);
const cut = (reply: Reply, { percent }: FaultHit): Reply => ({
  ...reply,
  cutAt: Math.floor((lengthOf(reply) * percent) / 100),
});

/**
 * Returns the number of bytes in this response before a position in the whole file; negative if the response begins
 * after that position.
 */
function bytesBefore(reply: Reply, percent: number): number {
  const { start, total } = spanOf(reply);
  return Math.floor((total * percent) / 100) - start;
}
const reaches = (reply: Reply, percent: number): boolean => {
  const before = bytesBefore(reply, percent);
  return before >= 0 && before < lengthOf(reply) && !(before === 0 && spanOf(reply).start > 0);
};

const EFFECTS: Partial<Record<FaultName, Effect>> = {
  'auth-401': { instead: (call) => invalidKey(call.requestId) },
  'balance-403': { instead: (call) => insufficientQuota(call.requestId) },
  'submit-429': { instead: limited },
  'submit-429-retry-after': { instead: limitedFor },
  'submit-503': { instead: overloaded },
  'submit-500': { instead: broken },
  'submit-reset': { instead: reset },
  'submit-reply-lost': { change: (reply) => ({ ...reply, cutAt: -1 }) },
  'submit-500-after-accept': { change: (_, __, call) => broken(call) },
  'submit-502-after-accept': { change: badGateway },
  'submit-slow': { change: (reply, _, call) => ({ ...reply, delayMs: call.gateway.paceMs }) },
  'client-gives-up': { change: (reply, _, call) => ({ ...reply, delayMs: 30 * call.gateway.paceMs }) },
  'submit-garbled': { change: garbled },
  'submit-empty': { change: (reply) => withBody(reply, '') },
  'submit-cut': { change: cut },
  'b-submit-limited': { instead: limitedAction },
  'b-submit-internal-error': {
    change: (_, __, call) => actionError('InternalError', 'Internal error.', call.requestId),
  },
  'poll-429': { instead: limited },
  'poll-500': { instead: broken },
  'poll-502': { instead: badGateway },
  'poll-503': { instead: overloaded },
  'poll-reset': { instead: reset },
  'poll-notfound': { instead: (call, route) => taskNotFound(route.area, call.requestId) },
  'poll-garbled': { change: garbled },
  'poll-cut': { change: cut },
  'download-502': { instead: badGateway },
  'download-gone': { instead: () => gatewayError(410, 'The result is gone.') },
  'url-expired': { instead: () => gatewayError(403, 'The address has expired.') },
  'download-html': { change: () => page(200, 'Please sign in') },
  'download-json': { change: () => json(200, { error: { message: 'Not available.' } }) },
  'download-cut': {
    fits: reaches,
    change: (reply, { percent }) => ({ ...reply, cutAt: bytesBefore(reply, percent) }),
  },
  'download-stall': {
    fits: reaches,
    change: (reply, { percent }) => ({ ...reply, stallAt: bytesBefore(reply, percent) }),
  },
  'models-502': { instead: badGateway },
  'tts-429': { instead: limited },
  'tts-500': { instead: broken },
  'responses-429': { instead: limited },
};
