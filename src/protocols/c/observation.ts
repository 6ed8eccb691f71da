import type { Failure, Reply } from '../../exchange.ts';
import { classify, messageIn, readFailure, requestIdOf } from '../../http/failures.ts';
import { idAt, isObject, textAt, tryParseJson, type Json, type JsonObject } from '../../json.ts';
import type { Observation, QueryVerdict, Result, Source } from '../protocol.ts';
import { isSuccess, judgeFailedQuery, inconclusive, taskFailure } from '../verdicts.ts';
import {
  nativeCodeOf,
  progressIn,
  reasonIn,
  reportsError,
  stateOf,
  taskIn,
  videoUrlIn,
  type ReportedTask,
} from './dialects.ts';

/** Reads the response to a status query, in every dialect. `content` is the result's path, if there is one. */
export function readQuery(reply: Reply, content: string | undefined): QueryVerdict {
  if (!isSuccess(reply)) return judgeFailedQuery(reply);
  const body = tryParseJson(reply.text);
  const task = isObject(body) ? taskIn(body) : undefined;
  if (isObject(body) && task !== undefined) return observe(reply, body, task, content);
  const verdict = /^50[45]1\d$/.exec(idAt(body, 'code') ?? '')?.[0];
  if (verdict !== undefined) return blockedObservation(reply, verdict);
  if (reportsError(body)) return judgeFailedQuery(reply);
  // A successful envelope without data means that the task was just created.
  const hasNoStateYet = isObject(body) && body['data'] === null && body['code'] !== undefined;
  return { ...inconclusive(reply, 'task status'), ...(hasNoStateYet && { hasNoStateYet }) };
}

// Returns the observation of a task that failed because its content was refused. In this case, Jimeng sends a code
// (50411, 50512, …) instead of a task.
function blockedObservation(reply: Reply, nativeStatus: string): Observation {
  const failure = { ...readFailure(reply), code: 'content_policy' as const };
  return { kind: 'observation', state: 'failed', nativeStatus, results: [], failure };
}

function observe(
  reply: Reply,
  body: JsonObject,
  task: ReportedTask,
  content: string | undefined,
): Observation {
  const common = {
    kind: 'observation' as const,
    nativeStatus: task.word,
    results: [],
    usage: objectIn(task.holder, 'usage') ?? objectIn(body, 'usage'),
    requestId: requestIdOf(reply, body),
  };
  const state = stateOf(task.word);
  const hasSucceeded = state === 'succeeded';
  // Most responses are for running tasks, which cannot have a URL yet.
  const url = hasSucceeded || state === undefined ? videoUrlIn(body) : undefined;
  const isError = hasSucceeded && (reportsError(body) || reportsError(task.holder));
  const isDenied = hasSucceeded && url === undefined && (isError || isDenialMessage(body));
  if (state === 'failed' || isDenied)
    return { ...common, state: 'failed', failure: failureOf(reply, body, task) };
  const progress = progressIn(task.holder) ?? progressIn(body);
  if (!hasSucceeded)
    return {
      ...common,
      state: state ?? 'running',
      progress,
      warning: unlistedStatusWarning(task.word, state, url),
    };
  const warning = isError
    ? `The task succeeded, but the response reports: ${reasonIn(task.holder, body) ?? 'an error'}`
    : undefined;
  return { ...common, state, progress, results: resultsOf(task.holder, content, url), warning };
}

// Whether a finished task without a video was refused. A refusal's envelope has no code, but has a message such as "Pre
// Img Risk Not Pass".
function isDenialMessage(body: JsonObject): boolean {
  const message = textAt(body, 'message') ?? '';
  return /fail|reject|denied|blocked/i.test(message) || classify(message, 400) === 'content_policy';
}

function unlistedStatusWarning(
  word: string,
  state: string | undefined,
  url: string | undefined,
): string | undefined {
  if (state !== undefined || url === undefined) return undefined;
  return `The status "${word}" is unknown, but the response contains a result; polling continues.`;
}

function failureOf(reply: Reply, body: JsonObject, task: ReportedTask): Failure {
  const reason = reasonIn(task.holder, body);
  const message = messageIn(tryParseJson(reason ?? '')) ?? reason;
  const text = message ?? `The task ended with status "${task.word}" and gave no reason.`;
  return taskFailure(reply, body, text, nativeCodeOf(task.holder, body));
}

function resultsOf(task: JsonObject, content: string | undefined, url: string | undefined): Result[] {
  const sources: Source[] = [];
  if (content !== undefined) sources.push({ kind: 'gateway', path: content });
  if (url !== undefined) sources.push({ kind: 'url', url, key: 'own-site' });
  return sources.length > 0 ? [{ sources, details: objectIn(task, 'metadata') }] : [];
}

// Returns the numbers and short strings in the member `name` of an object; undefined if there are none. Omits URLs,
// because some grant access without a key.
function objectIn(holder: JsonObject, name: string): JsonObject | undefined {
  const value = holder[name];
  if (!isObject(value)) return undefined;
  const members = Object.entries(value).filter(
    ([, member]) => typeof member === 'number' || isPlainText(member),
  );
  return members.length > 0 ? Object.fromEntries(members) : undefined;
}

function isPlainText(member: Json | undefined): boolean {
  return typeof member === 'string' && !member.includes('://') && member.length <= 200;
}

const waitWords =
  /not (yet )?(been )?(completed?|finished|ready|done)|not[_ ]ready|still (in[- _]?progress|processing|running|queued|pending|generating)|(is|being) (queued|pending|generated|processed)/i;

/**
 * Whether the response from a result's URL reports that the video is not ready yet. False for a failed task, although
 * its response has the same wording: `Task is not completed yet, current status: FAILURE`.
 */
export function notReady(reply: Reply): boolean {
  if (![200, 202, 400, 404, 409, 422, 425].includes(reply.status)) return false;
  const body = tryParseJson(reply.text);
  const task = isObject(body) ? taskIn(body) : undefined;
  const state = task && stateOf(task.word);
  if (reply.status === 425 || state === 'queued' || state === 'running') return true;
  if (reply.status === 202 && state === undefined && !reportsError(body)) return true;
  const { message, nativeCode } = readFailure(reply);
  const status = /current status:\s*([\w-]+)/i.exec(message)?.[1];
  if (status !== undefined) return stateOf(status) !== 'failed';
  return waitWords.test(`${nativeCode ?? ''} ${message}`) && !/fail|cancel|expire/i.test(message);
}
