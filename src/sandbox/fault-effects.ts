import { createHash } from 'node:crypto';
import { actionError, gatewayError, invalidKey, taskNotFound } from './envelopes.ts';
import type { Call, Reply, Route, RouteKind } from './exchange.ts';
import { json } from './exchange.ts';
import { spanOf } from './files.ts';
import type { FaultHit, FaultName } from './faults.ts';

/** What a fault does on the way of a call. Faults that decide a task's outcome, or a stream's, are not here. */
interface Effect {
  name: FaultName;
  /** The calls it strikes. */
  on: readonly RouteKind[];
  area?: Route['area'];
  /** Answers in place of the handler. */
  instead?: (call: Call, route: Route) => Reply;
  /** Changes what the handler answered. */
  change?: (reply: Reply, hit: FaultHit, call: Call) => Reply;
  /** False for an answer that this fault, at this percentage, would leave as it is. */
  fits?: (reply: Reply, percent: number) => boolean;
}

/**
 * Runs a handler under the faults of the sandbox. Those that refuse a call come first and keep it from the
 * handler; those that damage an answer strike only one that succeeded, since only that had an effect.
 */
export async function withFaults(
  calm: Call,
  route: Route,
  handle: (call: Call) => Promise<Reply>,
): Promise<Reply> {
  const kind = typeof route.kind === 'function' ? route.kind(calm) : route.kind;
  const subject = `${calm.path} ${createHash('sha256').update(calm.body).digest('hex')}`;
  const call = underChance(calm, calm.gateway.chance({ kind, area: route.area, subject }));
  const due = EFFECTS.filter(({ on, area }) => on.includes(kind) && (area ?? route.area) === route.area);
  for (const { name, instead } of due) {
    if (instead && call.gateway.take(name)) return instead(call, route);
  }
  const reply = await handle(call);
  const effectless = reply.status >= 300 || reply.refused || call.method === 'HEAD';
  return effectless ? reply : damaged(call, due, reply);
}

/** The call as it fares where chance struck it: with that fault next to those that were asked for. */
function underChance(call: Call, struck: FaultHit | undefined): Call {
  if (struck === undefined) return call;
  const { gateway } = call;
  const take: Call['gateway']['take'] = (name, fits) =>
    name === struck.name && (fits?.(struck.percent) ?? true) ? struck : gateway.take(name, fits);
  return { ...call, gateway: { ...gateway, take } };
}

function damaged(call: Call, due: readonly Effect[], reply: Reply): Reply {
  for (const { name, change, fits } of due) {
    const hit = change && call.gateway.take(name, (percent) => fits?.(reply, percent) ?? true);
    if (change && hit) return change(reply, hit, call);
  }
  return reply;
}

const ALL: readonly RouteKind[] = ['submit', 'poll', 'download', 'list', 'tts', 'responses'];
const PAID: readonly RouteKind[] = ['submit', 'tts', 'responses'];
const POLL: readonly RouteKind[] = ['poll'];
const SUBMIT: readonly RouteKind[] = ['submit'];
const DOWNLOAD: readonly RouteKind[] = ['download'];

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
const poor = (call: Call): Reply =>
  gatewayError(403, 'Insufficient balance', { code: 'insufficient_user_quota', requestId: call.requestId });
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

/** Bytes of this answer that come before a point of the whole file; negative where it begins beyond. */
function bytesBefore(reply: Reply, percent: number): number {
  const { start, total } = spanOf(reply);
  return Math.floor((total * percent) / 100) - start;
}
const reaches = (reply: Reply, percent: number): boolean => {
  const before = bytesBefore(reply, percent);
  return before >= 0 && before < lengthOf(reply) && !(before === 0 && spanOf(reply).start > 0);
};

const EFFECTS: readonly Effect[] = [
  { name: 'auth-401', on: ALL, instead: (call) => invalidKey(call.requestId) },
  { name: 'balance-403', on: PAID, instead: poor },
  { name: 'submit-429', on: SUBMIT, instead: limited },
  { name: 'submit-429-retry-after', on: SUBMIT, instead: limitedFor },
  { name: 'submit-503', on: SUBMIT, instead: overloaded },
  { name: 'submit-500', on: SUBMIT, instead: broken },
  { name: 'submit-reset', on: SUBMIT, instead: reset },
  { name: 'b-submit-limited', on: SUBMIT, area: 'b', instead: limitedAction },
  { name: 'submit-reply-lost', on: SUBMIT, change: (reply) => ({ ...reply, cutAt: -1 }) },
  { name: 'submit-500-after-accept', on: SUBMIT, change: (_, __, call) => broken(call) },
  { name: 'submit-502-after-accept', on: SUBMIT, change: badGateway },
  {
    name: 'b-submit-internal-error',
    on: SUBMIT,
    area: 'b',
    change: (_, __, call) => actionError('InternalError', 'Internal error.', call.requestId),
  },
  {
    name: 'submit-slow',
    on: SUBMIT,
    change: (reply, _, call) => ({ ...reply, delayMs: call.gateway.paceMs }),
  },
  { name: 'submit-garbled', on: SUBMIT, change: garbled },
  { name: 'submit-empty', on: SUBMIT, change: (reply) => withBody(reply, '') },
  { name: 'submit-cut', on: SUBMIT, change: cut },
  { name: 'poll-429', on: POLL, instead: limited },
  { name: 'poll-500', on: POLL, instead: broken },
  { name: 'poll-502', on: POLL, instead: badGateway },
  { name: 'poll-503', on: POLL, instead: overloaded },
  { name: 'poll-reset', on: POLL, instead: reset },
  { name: 'poll-notfound', on: POLL, instead: (call, route) => taskNotFound(route.area, call.requestId) },
  { name: 'poll-garbled', on: POLL, change: garbled },
  { name: 'poll-cut', on: POLL, change: cut },
  { name: 'download-502', on: DOWNLOAD, instead: badGateway },
  { name: 'download-gone', on: DOWNLOAD, instead: () => gatewayError(410, 'The result is gone.') },
  { name: 'url-expired', on: DOWNLOAD, instead: () => gatewayError(403, 'The address has expired.') },
  { name: 'download-html', on: DOWNLOAD, change: () => page(200, 'Please sign in') },
  { name: 'download-json', on: DOWNLOAD, change: () => json(200, { error: { message: 'Not available.' } }) },
  {
    name: 'download-cut',
    on: DOWNLOAD,
    fits: reaches,
    change: (reply, { percent }) => ({ ...reply, cutAt: bytesBefore(reply, percent) }),
  },
  {
    name: 'download-stall',
    on: DOWNLOAD,
    fits: reaches,
    change: (reply, { percent }) => ({ ...reply, stallAt: bytesBefore(reply, percent) }),
  },
  { name: 'models-502', on: ['list'], instead: badGateway },
  { name: 'tts-429', on: ['tts'], instead: limited },
  { name: 'tts-500', on: ['tts'], instead: broken },
  { name: 'responses-429', on: ['responses'], instead: limited },
];
