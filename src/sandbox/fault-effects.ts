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
import { canAffect, allFaults, type FaultHit, type FaultName } from './faults.ts';

/** A fault's effect on a call. Faults that determine the outcome of a task or stream are not listed here. */
interface Effect {
  /** Returns the response in place of the handler. */
  replace?: (call: Call, route: Route) => Reply;
  /** Returns the handler's response with changes. */
  change?: (reply: Reply, hit: FaultHit, call: Call) => Reply;
  /** Returns false if the fault would not change the response at this percentage. */
  canApply?: (reply: Reply, percent: number) => boolean;
}

/**
 * Runs a handler with the sandbox's faults. If a fault refuses the call, the handler does not run. A fault that damages
 * a response applies only to successful responses, because a refused call has no effect.
 */
export async function withFaults(
  originalCall: Call,
  route: Route,
  handle: (call: Call) => Promise<Reply>,
): Promise<Reply> {
  const kind = typeof route.kind === 'function' ? route.kind(originalCall) : route.kind;
  const subject = `${originalCall.path} ${createHash('sha256').update(originalCall.body).digest('hex')}`;
  const call = withRandomFault(
    originalCall,
    originalCall.gateway.pickRandomFault({ kind, area: route.area, subject }),
  );
  const names = allFaults.filter((fault) => canAffect(fault, kind, route.area)).map(({ name }) => name);
  for (const name of names) {
    const replace = effects[name]?.replace;
    if (replace && call.gateway.takeFault(name)) return replace(call, route);
  }
  const reply = await handle(call);
  const hadNoEffect = reply.status >= 300 || reply.isRefused || call.method === 'HEAD';
  return hadNoEffect ? reply : damage(call, names, reply);
}

/** Returns the call with its random fault, if any, in addition to the configured faults. */
function withRandomFault(call: Call, randomHit: FaultHit | undefined): Call {
  if (randomHit === undefined) return call;
  const { gateway } = call;
  const takeFault: Call['gateway']['takeFault'] = (name, canApply) =>
    name === randomHit.name && (canApply?.(randomHit.percent) ?? true)
      ? randomHit
      : gateway.takeFault(name, canApply);
  return { ...call, gateway: { ...gateway, takeFault } };
}

function damage(call: Call, names: readonly FaultName[], reply: Reply): Reply {
  for (const name of names) {
    const { change, canApply } = effects[name] ?? {};
    const hit = change && call.gateway.takeFault(name, (percent) => canApply?.(reply, percent) ?? true);
    if (change && hit) return change(reply, hit, call);
  }
  return reply;
}

const htmlPage = (status: number, title: string): Reply => ({
  status,
  headers: { 'Content-Type': 'text/html; charset=utf-8' },
  body: `<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>`,
});
const badGateway = (): Reply => htmlPage(502, '502 Bad Gateway');
const errorBuilder = (status: number, message: string) => (call: Call) =>
  gatewayError(status, message, { requestId: call.requestId });
const tooManyRequests = errorBuilder(429, 'Too many requests, please try again later');
const tooManyRequestsWithRetryAfter = (call: Call): Reply => {
  const reply = tooManyRequests(call);
  return { ...reply, headers: { ...reply.headers, 'Retry-After': '1' } };
};
const upstreamOverload = errorBuilder(503, 'The upstream is overloaded');
const internalError = errorBuilder(500, 'Internal server error');
const connectionReset = (): Reply => ({ status: 500, headers: {}, body: '', cutAt: -1 });
const withBody = (reply: Reply, body: string): Reply => ({ ...reply, body, onEnd: undefined });
const garble = (reply: Reply): Reply => withBody(reply, '{"id": "task_\u0000\u0001<<<');
const actionRateLimit = (call: Call): Reply =>
  actionError('RequestLimitExceeded', 'The request frequency exceeds the limit.', call.requestId);
const lengthOf = (reply: Reply): number => Buffer.byteLength(reply.body as string | Uint8Array);
const cutReply = (reply: Reply, { percent }: FaultHit): Reply => ({
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
const containsPosition = (reply: Reply, percent: number): boolean => {
  const offset = bytesBefore(reply, percent);
  return offset >= 0 && offset < lengthOf(reply) && !(offset === 0 && spanOf(reply).start > 0);
};

const effects: Partial<Record<FaultName, Effect>> = {
  'auth-401': { replace: (call) => invalidKey(call.requestId) },
  'balance-403': { replace: (call) => insufficientQuota(call.requestId) },
  'submit-429': { replace: tooManyRequests },
  'submit-429-retry-after': { replace: tooManyRequestsWithRetryAfter },
  'submit-503': { replace: upstreamOverload },
  'submit-500': { replace: internalError },
  'submit-reset': { replace: connectionReset },
  'submit-reply-lost': { change: (reply) => ({ ...reply, cutAt: -1 }) },
  'submit-500-after-accept': { change: (_, __, call) => internalError(call) },
  'submit-502-after-accept': { change: badGateway },
  'submit-slow': { change: (reply, _, call) => ({ ...reply, delayMs: call.gateway.paceMs }) },
  'client-gives-up': { change: (reply, _, call) => ({ ...reply, delayMs: 30 * call.gateway.paceMs }) },
  'submit-garbled': { change: garble },
  'submit-empty': { change: (reply) => withBody(reply, '') },
  'submit-cut': { change: cutReply },
  'b-submit-limited': { replace: actionRateLimit },
  'b-submit-internal-error': {
    change: (_, __, call) => actionError('InternalError', 'Internal error.', call.requestId),
  },
  'poll-429': { replace: tooManyRequests },
  'poll-500': { replace: internalError },
  'poll-502': { replace: badGateway },
  'poll-503': { replace: upstreamOverload },
  'poll-reset': { replace: connectionReset },
  'poll-notfound': { replace: (call, route) => taskNotFound(route.area, call.requestId) },
  'poll-garbled': { change: garble },
  'poll-cut': { change: cutReply },
  'download-502': { replace: badGateway },
  'download-gone': { replace: () => gatewayError(410, 'The result is gone.') },
  'url-expired': { replace: () => gatewayError(403, 'The address has expired.') },
  'download-html': { change: () => htmlPage(200, 'Please sign in') },
  'download-json': { change: () => json(200, { error: { message: 'Not available.' } }) },
  'download-cut': {
    canApply: containsPosition,
    change: (reply, { percent }) => ({ ...reply, cutAt: bytesBefore(reply, percent) }),
  },
  'download-stall': {
    canApply: containsPosition,
    change: (reply, { percent }) => ({ ...reply, stallAt: bytesBefore(reply, percent) }),
  },
  'models-502': { replace: badGateway },
  'tts-429': { replace: tooManyRequests },
  'tts-500': { replace: internalError },
  'responses-429': { replace: tooManyRequests },
};
