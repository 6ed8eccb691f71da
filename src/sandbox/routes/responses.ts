import { setTimeout as sleep } from 'node:timers/promises';
import { jsonObject } from '../body.ts';
import { isObject } from '../state.ts';
import { chargeFor } from '../bill.ts';
import { insufficientQuota, modelNotFound, type Call, json, type Reply, type Route } from '../exchange.ts';
import type { FaultHit } from '../faults.ts';
import { recordSent, recordFailure } from '../journal.ts';
import { findModel, cost, priceFor } from '../models.ts';

/** The routes of the Responses endpoint (specification 4.5), with and without a stream. */
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
  if (body === undefined) return invalidRequest('The body must be a JSON object.', null);
  if (typeof body.model !== 'string' || body.model === '')
    return invalidRequest('Missing required parameter: model.', 'model');
  const model = findModel('responses', body.model, call.mayUse);
  if (model === undefined) return modelNotFound(body.model, call.requestId);
  const input = inputText(body.input);
  if (input === undefined) return invalidRequest('Missing required parameter: input.', 'input');
  const maxTokens = body.max_output_tokens;
  if (
    maxTokens !== undefined &&
    maxTokens !== null &&
    !(Number.isInteger(maxTokens) && Number(maxTokens) > 0)
  )
    return invalidRequest('max_output_tokens must be a positive integer.', 'max_output_tokens');
  if (input.includes('[no-balance]')) return insufficientQuota(call.requestId);
  const answer = answerTo(model.id, input, typeof maxTokens === 'number' ? maxTokens : Infinity);
  const task = `responses-${call.requestId}`;
  const amount = cost(priceFor('responses', model.id), { units: answer.usage.total_tokens / 1000 });
  const service = { task, area: 'responses', model: model.id, amount, at: call.gateway.now() } as const;
  chargeFor(call, { ...service, body, text: input });
  const cutFault = body.stream === true ? call.gateway.takeFault('responses-cut') : undefined;
  const reply = body.stream === true ? streamReply(call, answer, cutFault) : jsonReply(call, answer);
  return cutFault || answer.status === 'failed'
    ? recordFailure(call, task, input, reply)
    : recordSent(call, task, reply);
}

function invalidRequest(message: string, param: string | null): Reply {
  return json(400, { error: { message, type: 'invalid_request_error', param, code: null } });
}

/**
 * Returns all text in an input, which is a string, or a list of messages whose content is a string or a list of parts.
 */
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

function jsonReply(call: Call, answer: Answer): Reply {
  return json(200, responseObject(answer, call.requestId, Math.floor(call.gateway.now() / 1000)));
}

/**
 * Returns the answer as server-sent events. If `cut` is set, omits the last event and all events after the position of
 * the cut.
 */
function streamReply(call: Call, answer: Answer, cut: FaultHit | undefined): Reply {
  const events = eventsOf(answer, call.requestId, Math.floor(call.gateway.now() / 1000));
  const sentEvents = cut ? events.slice(0, Math.floor(((events.length - 1) * cut.percent) / 100)) : events;
  return {
    status: 200,
    headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache' },
    body: pacedEvents(sentEvents, Math.min(maxPauseMs, call.gateway.paceMs / sentEvents.length)),
  };
}

const maxPauseMs = 20;

/** Yields the events one by one, with a pause after each, because a client must not rely on receiving them together. */
async function* pacedEvents(
  events: readonly { type: string }[],
  pauseMs: number,
): AsyncGenerator<Uint8Array> {
  for (const { type, ...rest } of events) {
    yield Buffer.from(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
    await sleep(pauseMs);
  }
}

/** The sandbox's answer to an input. */
interface Answer {
  model: string;
  status: 'completed' | 'incomplete' | 'failed';
  text: string;
  /** True if `text` is a refusal to answer. */
  isRefused: boolean;
  usage: { input_tokens: number; output_tokens: number; total_tokens: number };
}

/**
 * Returns an answer that repeats the input, in at most `maxWords` words. Magic words in the input cause a
 * failure or a refusal.
 */
function answerTo(model: string, input: string, maxWords: number): Answer {
  const isRefused = input.includes('[response-refuses]');
  const isFailed = input.includes('[response-fails]');
  const fullText = isRefused ? 'I cannot help with that.' : `The sandbox was asked: ${input.slice(0, 2000)}`;
  const words = fullText.split(/(?<=\s)/);
  const text = isFailed ? '' : words.slice(0, maxWords).join('').trimEnd();
  const usage = { input_tokens: countWords(input), output_tokens: countWords(text) };
  return {
    model,
    status: isFailed ? 'failed' : words.length > maxWords ? 'incomplete' : 'completed',
    text,
    isRefused,
    usage: { ...usage, total_tokens: usage.input_tokens + usage.output_tokens },
  };
}

/** Returns a finished response in the endpoint's format. */
function responseObject(answer: Answer, id: string, createdAt: number): Record<string, unknown> {
  const { status, usage } = answer;
  return {
    ...responseHead(answer, id, createdAt),
    status,
    error: status === 'failed' ? { code: 'server_error', message: 'The model failed.' } : null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    output: status === 'failed' ? [] : [messageItem(answer, id, [contentPart(answer, answer.text)])],
    usage: {
      ...usage,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens_details: { reasoning_tokens: 0 },
    },
  };
}

/** Returns a response that is in progress. */
function responseHead({ model }: Answer, id: string, createdAt: number): Record<string, unknown> {
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: createdAt,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    model,
    output: [],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: null,
  };
}

/** Returns the output's only item. Without content, the item is still in progress. */
function messageItem({ status }: Answer, id: string, content: object[]): Record<string, unknown> {
  const state = content.length === 0 ? 'in_progress' : status;
  return { id: `msg_${id}`, type: 'message', role: 'assistant', status: state, content };
}

/** Returns the message's only content part. */
function contentPart({ isRefused }: Answer, text: string): Record<string, unknown> {
  return isRefused
    ? { type: 'refusal', refusal: text }
    : { type: 'output_text', text, annotations: [], logprobs: [] };
}

function countWords(text: string): number {
  return text.split(/\s+/).filter((word) => word !== '').length;
}

/** A server-sent event, without its sequence number. */
type Event = Record<string, unknown> & { type: string };

/** Returns the events of a streamed response in order. The last event contains the outcome. */
function eventsOf(answer: Answer, id: string, createdAt: number): Event[] {
  const head = responseHead(answer, id, createdAt);
  const events: Event[] = [
    { type: 'response.created', response: head },
    { type: 'response.in_progress', response: head },
    ...(answer.status === 'failed' ? [] : messageEvents(answer, id)),
    { type: `response.${answer.status}`, response: responseObject(answer, id, createdAt) },
  ];
  return events.map((event, index) => ({ ...event, sequence_number: index }));
}

function messageEvents(answer: Answer, id: string): Event[] {
  const kind = answer.isRefused ? 'refusal' : 'output_text';
  const place = { item_id: `msg_${id}`, output_index: 0, content_index: 0 };
  const item = (content: object[]): object => ({ output_index: 0, item: messageItem(answer, id, content) });
  const part = (text: string): object => ({ ...place, part: contentPart(answer, text) });
  const deltas = answer.text
    .split(/(?<=\s)/)
    .map((delta) => ({ type: `response.${kind}.delta`, ...place, delta }));
  const done = answer.isRefused ? { refusal: answer.text } : { text: answer.text };
  return [
    { type: 'response.output_item.added', ...item([]) },
    { type: 'response.content_part.added', ...part('') },
    ...deltas,
    { type: `response.${kind}.done`, ...place, ...done },
    { type: 'response.content_part.done', ...part(answer.text) },
    { type: 'response.output_item.done', ...item([contentPart(answer, answer.text)]) },
  ];
}
