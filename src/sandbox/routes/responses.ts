import { charge, fingerprint } from '../bill.ts';
import { isObject, jsonObject } from '../body.ts';
import { gatewayError, modelNotFound } from '../envelopes.ts';
import type { Call, Reply, Route } from '../exchange.ts';
import { json } from '../exchange.ts';
import { findModel, type Model } from '../models.ts';
import { answerTo, responseObject, type Answer } from '../responses/answer.ts';
import { eventsOf } from '../responses/events.ts';

/** The Responses endpoint (specification 4.5), with and without a stream. */
export const responsesRoutes: readonly Route[] = [
  {
    method: 'POST',
    pattern: /^\/v1\/responses$/,
    area: 'responses',
    kind: 'responses',
    auth: 'bearer',
    handle: respond,
  },
];

function respond(call: Call): Reply {
  const body = jsonObject(call);
  if (body === undefined) return invalid('The body must be a JSON object.', null);
  if (typeof body.model !== 'string' || body.model === '')
    return invalid('Missing required parameter: model.', 'model');
  const model = findModel('responses', body.model);
  if (model === undefined) return modelNotFound(body.model, call.requestId);
  const input = inputText(body.input);
  if (input === undefined) return invalid('Missing required parameter: input.', 'input');
  const most = body.max_output_tokens;
  if (most !== undefined && most !== null && !(Number.isInteger(most) && Number(most) > 0))
    return invalid('max_output_tokens must be a positive integer.', 'max_output_tokens');
  if (input.includes('[no-balance]'))
    return gatewayError(403, 'Insufficient balance', {
      code: 'insufficient_user_quota',
      requestId: call.requestId,
    });
  const answer = answerTo(model.id, input, typeof most === 'number' ? most : Infinity);
  bill(call, model, body, answer);
  return body.stream === true ? streamed(call, answer) : whole(call, answer);
}

function invalid(message: string, param: string | null): Reply {
  return json(400, { error: { message, type: 'invalid_request_error', param, code: null } });
}

/** All text of an input: a string, or messages whose content is text or parts of it. */
function inputText(input: unknown): string | undefined {
  if (typeof input === 'string') return input === '' ? undefined : input;
  if (!Array.isArray(input) || input.length === 0) return undefined;
  return input.flatMap(textsOf).join('\n');
}

function textsOf(item: unknown): string[] {
  if (!isObject(item)) return [];
  const { content, text } = item;
  if (typeof content === 'string') return [content];
  if (Array.isArray(content)) return content.flatMap(textsOf);
  return typeof text === 'string' ? [text] : [];
}

function bill({ gateway, key, requestId }: Call, model: Model, body: unknown, { usage }: Answer): void {
  charge(gateway.stateDir, {
    task: `responses-${requestId}`,
    area: 'responses',
    model: model.id,
    amount: (usage.total_tokens / 1000) * model.rate,
    fingerprint: fingerprint({ model: model.id, body }),
    key,
    at: gateway.now(),
  });
}

function whole(call: Call, answer: Answer): Reply {
  return json(200, responseObject(answer, call.requestId, Math.floor(call.gateway.now() / 1000)));
}

/** Server-sent events; a cut leaves out those behind its place, and always the last one. */
function streamed(call: Call, answer: Answer): Reply {
  const events = eventsOf(answer, call.requestId, Math.floor(call.gateway.now() / 1000));
  const cut = call.gateway.take('responses-cut');
  const kept = cut ? events.slice(0, Math.floor(((events.length - 1) * cut.percent) / 100)) : events;
  const body = kept.map(
    ({ type, ...rest }) => `event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`,
  );
  return {
    status: 200,
    headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache' },
    body: body.join(''),
  };
}
