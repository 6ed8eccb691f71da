import { setTimeout as sleep } from 'node:timers/promises';
import { isObject, jsonObject } from '../body.ts';
import { chargeFor } from '../charge.ts';
import { cost } from '../credits.ts';
import { gatewayError, modelNotFound } from '../envelopes.ts';
import type { Call, Reply, Route } from '../exchange.ts';
import type { FaultHit } from '../faults.ts';
import { json } from '../exchange.ts';
import { tell, tellFailure } from '../journal.ts';
import { findModel } from '../models.ts';
import { priceFor } from '../prices.ts';
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
  const model = findModel('responses', body.model, call.mayUse);
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
  const task = `responses-${call.requestId}`;
  const amount = cost(priceFor('responses', model.id).price, answer.usage.total_tokens / 1000);
  const service = { task, area: 'responses', model: model.id, amount, at: call.gateway.now() } as const;
  chargeFor(call, { ...service, body, text: input });
  const cut = body.stream === true ? call.gateway.take('responses-cut') : undefined;
  const reply = body.stream === true ? streamed(call, answer, cut) : whole(call, answer);
  return cut || answer.status === 'failed' ? tellFailure(call, task, input, reply) : tell(call, task, reply);
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

function whole(call: Call, answer: Answer): Reply {
  return json(200, responseObject(answer, call.requestId, Math.floor(call.gateway.now() / 1000)));
}

/** Server-sent events; a cut leaves out those after its place, and always the last one. */
function streamed(call: Call, answer: Answer, cut: FaultHit | undefined): Reply {
  const events = eventsOf(answer, call.requestId, Math.floor(call.gateway.now() / 1000));
  const kept = cut ? events.slice(0, Math.floor(((events.length - 1) * cut.percent) / 100)) : events;
  return {
    status: 200,
    headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache' },
    body: paced(kept, Math.min(LONGEST_PAUSE_MS, call.gateway.paceMs / kept.length)),
  };
}

const LONGEST_PAUSE_MS = 20;

/** The events one by one, with a pause after each: a client must not count on getting them together. */
async function* paced(events: readonly { type: string }[], pauseMs: number): AsyncGenerator<Uint8Array> {
  for (const { type, ...rest } of events) {
    yield Buffer.from(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
    await sleep(pauseMs);
  }
}
