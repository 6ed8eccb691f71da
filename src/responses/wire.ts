import { type Exchange, type Failure, jsonBody, jsonHeaders } from '../exchange.ts';
import { classify, hasError, messageIn, nativeCodeIn } from '../http/failures.ts';
import { at, isObject, parseCutJson, textAt, tryParseJson, type Json, type JsonObject } from '../json.ts';

/** How a response ended. Specification 4.5 does not define the format of a response. */
export type ResponseEnd =
  /** `text` is the text of every message; empty if the model did something else, such as calling a tool. */
  | { kind: 'completed'; text: string; response?: JsonObject }
  /** The model stopped before the end of its text. */
  | { kind: 'incomplete'; reason: string; text: string; response?: JsonObject }
  | { kind: 'failed'; failure: Failure; response?: JsonObject }
  /** The response was accepted and is processed in the background. */
  | { kind: 'pending'; status: string; response: JsonObject }
  /** Nothing proves that the response is complete. */
  | { kind: 'cut'; why: string; response?: JsonObject }
  /** The reply contains no response object, so it is unknown whether anything was charged. */
  | { kind: 'unreadable'; excerpt: string };

/** Returns the request with the given body. */
export function responsesExchange(body: JsonObject): Exchange {
  const headers: Record<string, string> = { ...jsonHeaders };
  if (body['stream'] === true) headers['accept'] = 'text/event-stream, application/json;q=0.9';
  return { method: 'POST', path: '/v1/responses', headers, body: jsonBody(body) };
}

/** Interprets a complete response, from a document or from a stream's last event. Never throws. */
export function readResponse(json: JsonObject): ResponseEnd {
  const { status } = json;
  if (hasError(json['error']) || json['success'] === false || status === 'failed' || status === 'cancelled')
    return failedEnd(json, json);
  if (status === 'queued' || status === 'in_progress') return { kind: 'pending', status, response: json };
  const { text, refusal } = outputOf(json);
  if (status === 'incomplete') return incompleteEnd(json, text);
  // Some relays omit the status. A response with text is then treated as completed.
  if (status !== 'completed' && !(status === undefined && text !== '')) {
    const why = `the response is not marked as completed${messageSuffix(json)}`;
    return { kind: 'cut', why, response: json };
  }
  return text === '' && refusal !== ''
    ? refusedEnd(refusal, json)
    : { kind: 'completed', text, response: json };
}

function messageSuffix(json: JsonObject): string {
  const message = messageIn(json);
  return message === undefined ? '' : ` (${message.slice(0, 1000)})`;
}

/**
 * Interprets a complete document.
 * @param onText called with its text, if any: it was paid for, even if the response failed
 */
export function readWholeDocument(json: JsonObject, onText: (text: string) => void): ResponseEnd {
  const end = readResponse(json);
  const { text } = outputOf(json);
  if (text !== '' && end.kind !== 'pending') onText(text);
  return end;
}

// An incomplete escape at the end. The limit keeps the search from exhausting the stack.
const halfEscape = /(?<!\\)((?:\\\\){0,99})\\(u[\da-f]{0,3})?$/i;

/**
 * Interprets a truncated document. The received part was paid for.
 * @param onText called with the text of its messages, or with the document if no message can be read
 */
export function readCutDocument(document: string, onText: (text: string) => void): ResponseEnd {
  // The quote keeps a string that was cut. If the cut is not in a string, the quote is dropped.
  const json = parseCutJson(`${document.replace(halfEscape, '$1')}"`);
  const response = isObject(json) ? json : undefined;
  const text = outputOf(response).text || document;
  if (text !== '') onText(text);
  return { kind: 'cut', why: 'the response was truncated', response };
}

/** A parsed stream event. `place` identifies the part of the response to which the text belongs. */
export type ResponseEvent =
  | { kind: 'text'; delta: string; place: string }
  /** The complete text of a part, with or without earlier deltas. */
  | { kind: 'part'; text: string; place: string }
  | { kind: 'refusal'; delta: string }
  | { kind: 'end'; end: ResponseEnd }
  | { kind: 'other' };

/**
 * Parses one server-sent event by the `type` in its data, or by its name if the data has no type. Unknown events are
 * `other`, including the `[DONE]` that some relays add. Never throws.
 */
export function readEvent(name: string | undefined, data: string): ResponseEvent {
  const json = tryParseJson(data);
  // Some relays send an error as plain text.
  if (!isObject(json) && name === 'error') return { kind: 'end', end: failedEnd({ message: data.trim() }) };
  if (!isObject(json)) return { kind: 'other' };
  const type = textAt(json, 'type') ?? name ?? '';
  const place = JSON.stringify([at(json, 'output_index'), at(json, 'content_index'), at(json, 'item_id')]);
  switch (type) {
    case 'response.output_text.delta':
      return { kind: 'text', delta: textAt(json, 'delta') ?? '', place };
    case 'response.output_text.done':
      return { kind: 'part', text: textAt(json, 'text') ?? '', place };
    case 'response.refusal.delta':
      return { kind: 'refusal', delta: textAt(json, 'delta') ?? '' };
    case 'response.completed':
    case 'response.incomplete':
    case 'response.failed':
    case 'response.cancelled':
    case 'error':
      return { kind: 'end', end: readTerminalEvent(type, json) };
    default:
      return hasError(json['error']) ? { kind: 'end', end: failedEnd(json) } : { kind: 'other' };
  }
}

// The event's name determines the outcome; the response inside it contains the message.
function readTerminalEvent(type: string, event: JsonObject): ResponseEnd {
  const member = at(event, 'response');
  const response = isObject(member) ? member : undefined;
  if (type === 'response.incomplete') return incompleteEnd(response, outputOf(response).text);
  if (type !== 'response.completed')
    return failedEnd(response && hasError(response['error']) ? response : event, response);
  if (response === undefined) return { kind: 'completed', text: '' };
  return readResponse({ ...response, status: response['status'] ?? 'completed' });
}

function incompleteEnd(response: JsonObject | undefined, text: string): ResponseEnd {
  const reason = textAt(response, 'incomplete_details.reason') ?? 'no reason given';
  if (reason !== 'content_filter') return { kind: 'incomplete', reason, text, response };
  const message = 'The answer was withheld by the content filter.';
  return { kind: 'failed', failure: { code: 'content_policy', message, nativeCode: reason }, response };
}

/** Returns the end of a response in which the model refused. A refusal is treated as a failure, not as an answer. */
export function refusedEnd(refusal: string, response?: JsonObject): ResponseEnd {
  return {
    kind: 'failed',
    failure: { code: 'content_policy', message: `The model refused: ${refusal}` },
    response,
  };
}

function failedEnd(source: JsonObject, response?: JsonObject): ResponseEnd {
  const status = textAt(response, 'status');
  const message =
    messageIn(source) ?? (status === 'cancelled' ? 'The response was cancelled.' : 'The response failed.');
  const nativeCode = nativeCodeIn(source);
  const code = nativeCode === 'server_error' ? nativeCode : classify(`${nativeCode ?? ''} ${message}`, 200);
  const failure: Failure = { code: code === 'bad_reply' ? 'task_failed' : code, message, nativeCode };
  return { kind: 'failed', failure, response };
}

// Relays may send a string in place of a list. Client libraries add `output_text` at the top level, and some relays
// send it.
function outputOf(response: JsonObject | undefined): { text: string; refusal: string } {
  const items = listAt(response, 'output').filter((item) => at(item, 'type') === 'message');
  const parts = items.flatMap((item): Json[] => {
    const text = textAt(item, 'content');
    return text === undefined ? listAt(item, 'content') : [{ type: 'output_text', text }];
  });
  const join = (type: string, member: string): string =>
    parts.map((part) => (at(part, 'type') === type ? (textAt(part, member) ?? '') : '')).join('');
  const text =
    join('output_text', 'text') || (textAt(response, 'output') ?? textAt(response, 'output_text') ?? '');
  return { text, refusal: join('refusal', 'refusal') };
}

function listAt(value: Json | undefined, path: string): Json[] {
  const list = at(value, path);
  return Array.isArray(list) ? list : [];
}
