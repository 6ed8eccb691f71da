import type { Failure, Reply, SubmitVerdict } from '../exchange.ts';
import {
  bodyOf,
  classify,
  excerptOf,
  messageIn,
  nativeCodeIn,
  readFailure,
  requestIdOf,
} from '../http/failures.ts';
import { isObject, parseCutJson, type Json, at, idAt, textAt, tryNestedJson } from '../json.ts';
import type { QueryVerdict } from './protocol.ts';

/** Whether a response's status is 2xx. */
export function isSuccess({ status }: Reply): boolean {
  return status >= 200 && status < 300;
}

const definiteStatuses = new Set([400, 401, 402, 403, 404, 405, 413, 415, 422]);

/**
 * Judges a non-2xx response to a paid call, by the table in design 5. A response that contains a task's id is never a
 * refusal, nor is a truncated response. A 307 or 308 tells the client to resend the request elsewhere, so the request
 * was not processed. A 301, 302 or 303 may be sent after a task was created.
 * @param sent the request's body; a refusal may quote ids from it
 */
export function judgeFailedSubmission(reply: Reply, sent?: Json): SubmitVerdict {
  const failure = readFailure(reply);
  const doubt = doubtOf(reply, failure, sent);
  if (doubt !== undefined) return doubt;
  if (!reply.complete) return { kind: 'unknown', failure };
  if (reply.status === 307 || reply.status === 308)
    return { kind: 'rejected', failure: redirectFailure(reply, failure) };
  if (reply.status === 404) return { kind: 'rejected', failure: notFoundFailure(failure) };
  if (reply.status === 429 || (reply.status === 503 && isOfGateway(reply))) return judgeUnavailable(failure);
  return { kind: definiteStatuses.has(reply.status) ? 'rejected' : 'unknown', failure };
}

const ownHeaders = ['retry-after', 'x-api-status-code'];
// Matches messages of Envoy and of load balancers, which may be configured to return JSON.
const envoyWords = /upstream connect error|reset before headers/i;
const statusPhrase = /^service (temporarily )?unavailable\.?$/i;

// Whether an error comes from the gateway itself. If so, it proves that nothing was handled. A proxy's error (a page, a
// sentence, an empty body) may replace the lost response for a task that was created.
function isOfGateway(reply: Reply): boolean {
  if (ownHeaders.some((name) => reply.headers[name] !== undefined)) return true;
  const body = bodyOf(reply);
  const message = messageIn(body) ?? '';
  if (!isObject(body) || envoyWords.test(message)) return false;
  return nativeCodeIn(body) !== undefined || (message !== '' && !statusPhrase.test(message));
}

// Judges a 429 or a 503. An exhausted balance or a missing model may also be reported with these statuses, but then a
// retry cannot help.
function judgeUnavailable(failure: Failure): SubmitVerdict {
  const isPermanent = failure.code === 'balance' || failure.code === 'not_found';
  return { kind: isPermanent ? 'rejected' : 'unavailable', failure };
}

function redirectFailure(reply: Reply, failure: Failure): Failure {
  const target = reply.headers['location'] ?? 'an unspecified address';
  return {
    ...failure,
    code: 'invalid_request',
    message: `The gateway redirects submissions to ${target}; mgw never redirects a submission. Check the base URL.`,
  };
}

/**
 * Returns the failure of a 404, with advice about the base URL. The cause is a wrong base path (specification 4.5) or a
 * missing model. If the model is missing, the message names it.
 */
export function notFoundFailure(failure: Failure): Failure {
  const { message, nativeCode = '' } = failure;
  if (/model_not_found|model [^/]{0,80}\bnot\b/i.test(`${nativeCode} ${message}`)) return failure;
  const hint = 'If the path is unknown, check the base URL: mgw adds /v1 itself.';
  return { ...failure, message: `${message.replace(/\.$/, '')}. ${hint}` };
}

/**
 * Judges a non-2xx response to a status query, or a 2xx response that reports an error (design 6). The response proves
 * that the key is refused, that the task is missing, or nothing. A 503 for a missing model proves nothing about the
 * task.
 */
export function judgeFailedQuery(reply: Reply): QueryVerdict {
  const failure = readFailure(reply);
  if (failure.code === 'not_found' && reply.status < 500) return { kind: 'missing', failure };
  if (failure.code === 'auth') return { kind: 'unauthorized', failure };
  return { kind: 'again', failure };
}

/** Returns the verdict `again`, for a response that contains no state. */
export function inconclusive(reply: Reply, what: string): QueryVerdict & { kind: 'again' } {
  return { kind: 'again', failure: unreadable(reply, what) };
}

/**
 * Returns an accepted task's failure. Every failed task is charged, so only a content-policy refusal has its own error
 * code. For other failures, see the native code and message.
 */
export function taskFailure(reply: Reply, body: Json, message: string, nativeCode?: string): Failure {
  const isPolicy = classify(`${nativeCode ?? ''} ${message}`, 400) === 'content_policy';
  const code = isPolicy ? 'content_policy' : 'task_failed';
  return { code, message, nativeCode, requestId: requestIdOf(reply, body) };
}

/** Returns the failure for an unreadable 2xx response. */
export function unreadable(reply: Reply, what: string): Failure {
  const excerpt = excerptOf(reply.text);
  const message =
    excerpt === '' ? `an empty response instead of ${what}` : `no ${what} in the response: ${excerpt}`;
  return { ...readFailure(reply), code: 'bad_reply', message };
}

/**
 * Judges a 2xx response to a submission that contains no handle in its field. Keeps an id found elsewhere in it, unless
 * the id is the end of the text, where it may be incomplete.
 */
export function judgeUnreadableSubmission(reply: Reply, what: string, sent: Json): SubmitVerdict {
  let end = reply.text.length;
  while (end > 0 && /[\w./-]/.test(reply.text[end - 1] ?? '')) end -= 1;
  const text = reply.text.slice(0, end);
  const doubt = doubtOf({ ...reply, text }, { ...readFailure(reply), code: 'bad_reply' }, sent);
  return doubt ?? { kind: 'unknown', failure: unreadable(reply, what) };
}

// The paths of a task's id, best first. In a wrapped task `data.id` is a row number, so `data.task_id` comes first.
const idPaths = [
  'task_id',
  'id',
  'taskId',
  'data',
  'data.task_id',
  'data.taskId',
  'data.id',
  'data.0.task_id',
  'data.0.taskId',
  'data.0.id',
  'task.task_id',
  'task.id',
  'output.task_id',
  'result.task_id',
  'result.taskId',
  'result.id',
  'data.task.task_id',
  'data.task.id',
  'video_id',
  'job_id',
];
// The paths to try only if no other field can contain the task's id. Otherwise, these fields contain the call's id.
const lastIdPaths = ['requestId', 'request_id'];
const idHolders = ['data', 'output', 'result', 'task', 'error', 'code'];

/**
 * Returns the task's id from a response to a Protocol C submission, unchanged; undefined if there is none. `isDoubtful`
 * is true if the response was truncated or reports an error. In that case, an id that may be something else, such as a
 * row number, is ignored.
 */
export function taskIdIn(body: Json | undefined, isDoubtful: boolean): string | undefined {
  const taskId = idPaths.map((path) => idWithin(body, path, isDoubtful)).find((id) => id !== undefined);
  if (taskId !== undefined || isDoubtful || idHolders.some((name) => at(body, name) !== undefined))
    return taskId;
  return lastIdPaths.map((path) => textAt(body, path)).find((id) => id !== undefined);
}

function idWithin(body: Json | undefined, path: string, isDoubtful: boolean): string | undefined {
  const value = at(body, path);
  if (typeof value === 'number' && (value <= 0 || (isDoubtful && /(^|\.)id$/.test(path)))) return undefined;
  const id = idAt(body, path);
  if (id === undefined || id.trim() === '') return undefined;
  return path !== 'data' || looksLikeId(id, isDoubtful) ? id : undefined;
}

// Whether the value of `data` is an id. The field may contain a sentence instead.
function looksLikeId(value: string, isDoubtful: boolean): boolean {
  return isDoubtful ? /^(?=.*\d)[\w-]{12,}$/.test(value) : !/\s/.test(value);
}

const actionIdPaths = [
  'Response.TaskId',
  'Response.AigcVideoTask.TaskId',
  'TaskId',
  'Response.task_id',
  'task_id',
];

/**
 * Returns the task's id from a Protocol B response; undefined if there is none. Relays send zero if there is no task.
 */
export function actionTaskIdIn(body: Json | undefined): string | undefined {
  return actionIdPaths.map((path) => idAt(body, path)).find((id) => id && !/^(0|-\d+)$/.test(id));
}

/**
 * Returns the verdict `unknown` if a response that is not an acceptance contains a task's id, because the task may
 * exist (design 5). Returns undefined if the response contains no task's id.
 * @param sent the body of the request, whose ids a refusal may quote
 */
export function doubtOf(reply: Reply, failure: Failure, sent?: Json): SubmitVerdict | undefined {
  const handle = strayTaskIdIn(reply, sent);
  if (handle === undefined) return undefined;
  const message = `${failure.message} (HTTP ${reply.status}, with the task id ${handle})`;
  return { kind: 'unknown', failure: { ...failure, message }, handle };
}

// Finds a task's id in a response that is not an acceptance. The response's fields take precedence over its text, which
// may quote the request.
function strayTaskIdIn(reply: Reply, sent: Json | undefined): string | undefined {
  const json = bodyOf(reply);
  const body = json ?? parseCutJson(reply.text);
  const { texts, values } = textsIn(body);
  texts.push(reply.headers['location'] ?? '', ...(json === undefined ? [reply.text] : []));
  const requestTexts = textsIn(sent).texts;
  const ids = new Set([...values.map(taskIdInFields), ...texts.flatMap(taskIdsInWords)]);
  return (
    taskIdInFields(body) ??
    [...ids].find((id) => id !== undefined && !requestTexts.some((text) => quotes(text, id)))
  );
}

const taskIdPaths = ['error.task_id', ...idPaths.filter((path) => /task_?id$/i.test(path))];
const placeholder = /^(none|null|nil|undefined|unknown|n\/a)$/i;

/**
 * Returns a task's id from the fields of an error response, in any protocol's format: an operation's name (A), a
 * `TaskId` (B), or an id of Protocol C. Ignores an `id` that is a word, which some errors contain.
 */
function taskIdInFields(body: Json | undefined): string | undefined {
  const name = textAt(body, 'name');
  if (name?.includes('/operations/')) return name;
  const candidates = [actionTaskIdIn(body), ...taskIdPaths.map((path) => idWithin(body, path, true))];
  const id = candidates.find(
    (value) => value !== undefined && /^\S+$/.test(value) && !placeholder.test(value),
  );
  if (id !== undefined) return id;
  const otherId = taskIdIn(body, true);
  return otherId !== undefined && /\d|^task_[a-z]{20}/i.test(otherId) ? otherId : undefined;
}

// Patterns of task ids in a sentence: ids that begin with `task_`, operation names, and the word after "task id". Call
// ids (request id, log id, trace) have other labels. Each pattern matches in linear time.
const taskIdPatterns = [
  /(?<![\w-])(task[_-](?:(?=[a-z-]*\d)[a-z\d-]{8,200}|[a-z]{20,200}))(?!\w)/gi,
  /(?<![\w-])(models\/[\w.-]{1,200}\/operations\/[\w-]{1,200})/g,
  /(?<![\w-])(?:task|任务)[ _-]?id[\\"'`\s:=：]{1,8}(?=[\w-]*\d)([\w-]{6,2000})/gi,
];

function taskIdsInWords(text: string): (string | undefined)[] {
  return taskIdPatterns.flatMap((pattern) => [...text.matchAll(pattern)].map(([, id]) => id));
}

// Limits of the search: the nesting depth of JSON in strings, and the number of strings.
const maxNesting = 3;
const maxTexts = 1000;

/**
 * Returns the strings and numbers in a value, outermost first, each preceded by its name, and the JSON values in the
 * strings. A gateway's message may be the JSON of the upstream's own response.
 */
function textsIn(body: Json | undefined): { texts: string[]; values: Json[] } {
  const texts: string[] = [];
  const values: Json[] = [];
  const queue = [{ name: '', value: body, depth: 0 }];
  for (const { name, value, depth } of queue) {
    if (texts.length >= maxTexts) break;
    if (typeof value === 'object' && value !== null)
      for (const [key, member] of Object.entries(value)) queue.push({ name: key, value: member, depth });
    if (typeof value !== 'string' && typeof value !== 'number') continue;
    texts.push(`${name}: ${value}`);
    const inner = typeof value === 'string' && depth < maxNesting ? tryNestedJson(value) : undefined;
    if (inner === undefined) continue;
    values.push(inner);
    queue.push({ name, value: inner, depth: depth + 1 });
  }
  return { texts, values };
}

// A shorter id could match a number in a prompt by coincidence.
const minQuoteLength = 8;

// Whether text contains an id as a separate word.
function quotes(text: string, id: string): boolean {
  if (id.length < minQuoteLength) return false;
  for (let start = text.indexOf(id); start >= 0; start = text.indexOf(id, start + id.length))
    if (!/[\w-]/.test(text.charAt(start - 1) + text.charAt(start + id.length))) return true;
  return false;
}
