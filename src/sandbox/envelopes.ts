import type { Exceeded, Reply } from './exchange.ts';
import { json } from './exchange.ts';
import type { Area } from './models.ts';

/** The envelope of whatever fails before an upstream is reached: keys, models, limits, unknown paths. */
export function gatewayError(
  status: number,
  message: string,
  options: { code?: string; type?: string; requestId?: string } = {},
): Reply {
  const { code = '', type = 'new_api_error', requestId } = options;
  const text = requestId === undefined ? message : `${message} (request id: ${requestId})`;
  return json(status, { error: { message: text, type, code } });
}

/** HTTP 401 for a key that is missing, malformed or not issued (specification 5). */
export function invalidKey(requestId: string): Reply {
  return gatewayError(401, 'Invalid token', { requestId });
}

/** HTTP 403 for an account whose balance is too low. */
export function insufficientQuota(requestId: string): Reply {
  return gatewayError(403, 'Insufficient balance', { code: 'insufficient_user_quota', requestId });
}

/** HTTP 503 for a model that the key's group does not have. */
export function modelNotFound(model: string, requestId: string): Reply {
  const message = `No available channel for model ${model} under group default (distributor)`;
  return gatewayError(503, message, { code: 'model_not_found', requestId });
}

/** HTTP 404 for a path or method that the gateway does not serve. */
export function unknownPath(method: string, path: string): Reply {
  const message = `Invalid URL (${method} ${path})`;
  return json(404, { error: { message, type: 'invalid_request_error', param: '', code: '' } });
}

/** Protocol C's envelope of errors about a task. */
export function taskError(status: number, code: string, message: string): Reply {
  return json(status, { code, message, data: null });
}

/** Protocol A's envelope, as the upstream of the operation sends it. */
export function operationError(code: number, status: string, message: string): Reply {
  return json(code, { error: { code, message, status } });
}

/** Protocol B's envelope: a business failure under HTTP 200 (specification 2.4, 7). */
export function actionError(code: string, message: string, requestId: string): Reply {
  const error = { Error: { Code: code, Message: message }, RequestId: requestId };
  return { ...json(200, { Response: error }), refused: true };
}

/** What a call that exceeds a limit is answered: HTTP 429, or a lack of balance as each area says it. */
export function limitExceeded(area: Area, exceeded: Exceeded, requestId: string): Reply {
  if (exceeded.limit === 'balance') return insufficientBalance(area, requestId);
  if (exceeded.limit === 'rate') {
    const reply = gatewayError(429, 'Too many requests, please try again later', { requestId });
    return { ...reply, headers: { ...reply.headers, 'Retry-After': String(exceeded.retryAfter) } };
  }
  return area === 'tts'
    ? json(429, { code: 45_000_292, message: 'quota exceeded for types: concurrency' })
    : gatewayError(429, 'Too many tasks are under way, please try again later', { requestId });
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

/** A task that is not there, expired, or another key's, as each protocol says it. */
export function taskNotFound(area: Area | 'models', requestId: string): Reply {
  if (area === 'a') return operationError(404, 'NOT_FOUND', 'Operation not found.');
  if (area === 'b')
    return actionError('ResourceNotFound', 'The task does not exist or has expired.', requestId);
  return taskError(400, 'task_not_exist', 'task_not_exist');
}
