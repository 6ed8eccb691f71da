import type { IncomingHttpHeaders } from 'node:http';
import type { AuthScheme, Caller } from './auth.ts';
import type { FaultHit, FaultName, FaultSubject, RouteKind } from './faults.ts';
import type { Area } from './models.ts';

/** The limits for all clients of a state folder together. An absent limit means unlimited. */
export interface Limits {
  /** The balance in credits, before the first charge. */
  balance?: number;
  /** The maximum number of video tasks in progress, and of speech streams in each sandbox. */
  concurrency?: number;
  /** The maximum number of paid calls in any period of 60 seconds. */
  perMinute?: number;
}

/** The limit that a paid call exceeds. `retryAfter` is in seconds. */
export type ExceededLimit =
  { limit: 'balance' } | { limit: 'concurrency' } | { limit: 'rate'; retryAfter: number };

/** A gateway's state. Gateways with the same state folder share its tasks. */
export interface Gateway {
  stateDir: string;
  /** Returns the time in milliseconds since 1970. */
  now: () => number;
  /** The duration of one generation, in milliseconds. */
  paceMs: number;
  seed: number | undefined;
  limits: Limits;
  /** Voices in addition to the sandbox's own voices. */
  voices: readonly string[];
  /** Removes the real key, which a prompt may contain by mistake, from stored tasks. */
  redact: (text: string) => string;
  /** The number of speech streams that are being sent. */
  streams: { open: number };
  /** The origins of the gateway and of Protocol B's file host. Empty until both are listening. */
  url: string;
  fileUrl: string;
  /**
   * Counts and returns one occurrence of a fault, if the fault is configured. `canApply` can decline the fault, given its
   * percentage. A declined fault is not counted.
   */
  takeFault: (name: FaultName, canApply?: (percent: number) => boolean) => FaultHit | undefined;
  /** Returns a random fault for a call, if the sandbox was started with `chaos`. */
  pickRandomFault: (call: FaultSubject) => FaultHit | undefined;
}

/** A complete request. The key is '' on routes without authentication. */
export interface Call extends Caller {
  method: string;
  /** The request's path, percent-encoded. */
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
  requestId: string;
  gateway: Gateway;
}

/** An endpoint. `handle` receives the groups of `pattern`, percent-decoded. */
export interface Route {
  method: 'GET' | 'POST';
  pattern: RegExp;
  area: Area | 'models';
  /** The kind of call; a function if one path has several operations, as in Protocol B. */
  kind: RouteKind | ((call: Call) => RouteKind);
  auth: AuthScheme;
  handle(call: Call, ...groups: string[]): Reply | Promise<Reply>;
}

/** A response. An iterable body is streamed. Any other body is sent with a `Content-Length`. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** Whether the call was refused, even if its HTTP status is a success (Protocol B). */
  isRefused?: true;
  /** The number of body bytes after which the connection breaks; -1 breaks it before the status line. */
  cutAt?: number;
  /** The number of body bytes after which nothing more is sent, while the connection remains open. */
  stallAt?: number;
  /** The number of milliseconds to wait before responding. */
  delayMs?: number;
  /**
   * Called once at the end of the response. Receives the number of body bytes that were written to the network, and
   * whether they were the whole body. Not called for a HEAD request.
   */
  onEnd?: (bytes: number, isWhole: boolean) => void;
}

/** Thrown to refuse a call. The router sends `reply`. */
export class RefusedCall extends Error {
  readonly reply: Reply;
  constructor(reply: Reply) {
    super(`Refused with HTTP ${reply.status}`);
    this.reply = reply;
  }
}

/** Builds a JSON response. */
export function json(status: number, value: unknown, headers: Record<string, string> = {}): Reply {
  return {
    status,
    headers: { 'Content-Type': 'application/json; charset=utf-8', ...headers },
    body: JSON.stringify(value),
  };
}

/** Builds an error of the gateway itself, not of an upstream: about keys, models, limits and unknown paths. */
export function gatewayError(
  status: number,
  message: string,
  options: { code?: string; type?: string; requestId?: string } = {},
): Reply {
  const { code = '', type = 'new_api_error', requestId } = options;
  const text = requestId === undefined ? message : `${message} (request id: ${requestId})`;
  return json(status, { error: { message: text, type, code } });
}

/** Builds the HTTP 401 for a key that is missing, malformed or not issued (specification 5). */
export function invalidKey(requestId: string): Reply {
  return gatewayError(401, 'Invalid token', { requestId });
}

/** Builds the HTTP 403 for an account whose balance is too low. */
export function insufficientQuota(requestId: string): Reply {
  return gatewayError(403, 'Insufficient balance', { code: 'insufficient_user_quota', requestId });
}

/** Builds the HTTP 503 for a model that is not in the key's group. */
export function modelNotFound(model: string, requestId: string): Reply {
  const message = `No available channel for model ${model} under group default (distributor)`;
  return gatewayError(503, message, { code: 'model_not_found', requestId });
}

/** Builds the HTTP 404 for a path or method that the gateway does not support. */
export function unknownPath(method: string, path: string): Reply {
  const message = `Invalid URL (${method} ${path})`;
  return json(404, { error: { message, type: 'invalid_request_error', param: '', code: '' } });
}

/** Builds an error about a Protocol C task. */
export function taskError(status: number, code: string, message: string): Reply {
  return json(status, { code, message, data: null });
}

/** Builds a Protocol A error, in the upstream's format. */
export function operationError(code: number, status: string, message: string): Reply {
  return json(code, { error: { code, message, status } });
}

/** Builds a Protocol B error: a business failure with HTTP 200 (specification 2.4, 7). */
export function actionError(code: string, message: string, requestId: string): Reply {
  const error = { Error: { Code: code, Message: message }, RequestId: requestId };
  return { ...json(200, { Response: error }), isRefused: true };
}

/** Builds the response to a call that exceeds a limit: HTTP 429, or the area's error for an insufficient balance. */
export function limitExceeded(area: Area, exceeded: ExceededLimit, requestId: string): Reply {
  if (exceeded.limit === 'balance') return insufficientBalance(area, requestId);
  if (exceeded.limit === 'rate') {
    const reply = gatewayError(429, 'Too many requests, please try again later', { requestId });
    return { ...reply, headers: { ...reply.headers, 'Retry-After': String(exceeded.retryAfter) } };
  }
  return area === 'tts'
    ? json(429, { code: 45_000_292, message: 'quota exceeded for types: concurrency' })
    : gatewayError(429, 'Too many tasks are in progress, please try again later', { requestId });
}

function insufficientBalance(area: Area, requestId: string): Reply {
  const message = 'Insufficient balance';
  const code = 'insufficient_user_quota';
  switch (area) {
    case 'a':
      return insufficientQuota(requestId);
    case 'b':
      return actionError('FailedOperation.InsufficientBalance', `${message}.`, requestId);
    case 'c':
      return taskError(403, code, message);
    case 'tts':
      return json(403, { code: 45_000_000, message: 'quota exceeded for types: text_words_lifetime' });
    case 'responses': {
      const type = 'insufficient_quota';
      return json(429, { error: { message, type, param: null, code: type } });
    }
  }
}

/** Builds the protocol's error for a task that does not exist, has expired, or belongs to another key. */
export function taskNotFound(area: Area | 'models', requestId: string): Reply {
  if (area === 'a') return operationError(404, 'NOT_FOUND', 'Operation not found.');
  if (area === 'b')
    return actionError('ResourceNotFound', 'The task does not exist or has expired.', requestId);
  return taskError(400, 'task_not_exist', 'task_not_exist');
}
