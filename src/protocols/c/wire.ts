import { MgwError, usageError } from '../../errors.ts';
import {
  type Exchange,
  type Failure,
  jsonBody,
  jsonHeaders,
  type Reply,
  type SubmitVerdict,
} from '../../exchange.ts';
import { messageIn, readFailure } from '../../http/failures.ts';
import { isObject, parseCutJson, tryParseJson, type Json, type JsonObject } from '../../json.ts';
import { taskIdIn } from '../task-id.ts';
import { isSuccess, judgeFailedSubmission, unreadable } from '../verdicts.ts';
import { shownValue } from '../violations.ts';
import { saysError, stateOf, taskIn, type ShownTask } from './dialects.ts';

const submitPaths = new Map([
  ['generations', '/v1/video/generations'],
  ['videos', '/v1/videos'],
]);
const longestHandle = 2048;

/** The names of the two paths of a submission, which are equivalent. */
export const endpoints = [...submitPaths.keys()];

/**
 * The exchange that submits (specification 4.3).
 * @throws MgwError('usage') if there is no such endpoint.
 */
export function submission(body: JsonObject, { endpoint = 'generations' } = {}): Exchange {
  const path = submitPaths.get(endpoint);
  if (path === undefined)
    throw usageError(`--endpoint: ${shownValue(endpoint)} is not allowed; allowed: ${endpoints.join(', ')}`);
  return { method: 'POST', path, headers: jsonHeaders, body: jsonBody(body) };
}

/**
 * The exchange that asks for a task.
 * @throws MgwError('result_unavailable') if the handle cannot be put into a path.
 */
export function query(handle: string): Exchange {
  const step = pathStep(handle);
  if (step !== undefined) return { method: 'GET', path: `/v1/video/generations/${step}`, headers: {} };
  const text = `The gateway's task id ${shownValue(handle)} cannot be put into a path, so the task cannot be queried.`;
  throw new MgwError('result_unavailable', text, { charged: 'yes' });
}

/** The path of a task's result; undefined if the handle cannot be put into one. */
export function contentPath(handle: string): string | undefined {
  const step = pathStep(handle);
  return step && `/v1/videos/${step}/content`;
}

// A handle comes from the gateway. One that could change the path is not sent.
function pathStep(handle: string): string | undefined {
  // Most are plain, and Unicode classes are compiled on first use.
  if (/^[\w-]{1,64}$/.test(handle)) return handle;
  if (handle.length > longestHandle || handle.trim() === '' || handle === '.') return undefined;
  return /[\p{Cc}\p{Cs}?#]|\.\.|:\/\//u.test(handle) ? undefined : encodeURIComponent(handle);
}

/** Reads the answer to a submission, in every dialect; a handle counts even next to an error. */
export function readSubmission(reply: Reply): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply);
  const whole = tryParseJson(reply.text);
  const isCut = whole === undefined;
  const body = whole === undefined ? parseCutJson(reply.text) : whole;
  const isError = saysError(body);
  const handle = taskIdIn(body, isCut || isError);
  const task = isObject(body) ? taskIn(body) : undefined;
  if (handle !== undefined)
    return { kind: 'accepted', handle, nativeStatus: task?.word, warning: oddity(body, isError, isCut) };
  if (!isError || isCut || !reply.complete || isUnderWay(task))
    return { kind: 'unknown', failure: unreadable(reply, 'task id') };
  return judgeReportedError(readFailure(reply));
}

function oddity(body: Json | undefined, isError: boolean, isCut: boolean): string | undefined {
  if (isError)
    return `The task was accepted, yet the answer reports an error: ${messageIn(body) ?? 'no text'}`;
  return isCut ? 'The answer was cut short after the task id.' : undefined;
}

// A task without an id was still created.
function isUnderWay(task: ShownTask | undefined): boolean {
  return task !== undefined && stateOf(task.word) !== 'failed';
}

const refusals = new Set<Failure['code']>([
  'auth',
  'balance',
  'not_found',
  'invalid_request',
  'content_policy',
]);

const limitCodes = /^(429|1002|1302|1303|50429|50430)$|rate_?limit/i;

// An error with HTTP 200 may hide a created task unless its words exclude it, and only a code is certain enough to send
// again.
function judgeReportedError(failure: Failure): SubmitVerdict {
  if (failure.code === 'rate_limited' && limitCodes.test(failure.nativeCode ?? ''))
    return { kind: 'unavailable', failure };
  return { kind: refusals.has(failure.code) ? 'rejected' : 'unknown', failure };
}
