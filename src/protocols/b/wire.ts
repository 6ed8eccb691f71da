import { MgwError } from '../../errors.ts';
import { type Exchange, jsonBody, jsonHeaders, type Reply, type SubmitVerdict } from '../../exchange.ts';
import { bodyOf } from '../../http/failures.ts';
import { parseCutJson, type Json, type JsonObject } from '../../json.ts';
import { actionTaskIdIn } from '../task-id.ts';
import { isSuccess, judgeFailedSubmission, unreadable } from '../verdicts.ts';
import { callError, readCallError } from './codes.ts';

type Action = 'CreateAigcVideoTask' | 'DescribeTaskDetail';

// The path is the root (specification 4.2). The version is that of the interface, not of the model.
function call(action: Action, body: JsonObject): Exchange {
  const headers = { ...jsonHeaders, 'X-TC-Version': '2018-07-17', 'X-TC-Action': action };
  return { method: 'POST', path: '/', headers, body: jsonBody(body) };
}

/** The exchange that creates a task (specification 4.2). */
export function submission(body: JsonObject): Exchange {
  return call('CreateAigcVideoTask', body);
}

/**
 * The request that queries a task. The id is in the body, so it may be any text.
 * @throws MgwError('result_unavailable') if the handle is blank.
 */
export function query(handle: string): Exchange {
  if (handle.trim() === '')
    throw new MgwError('result_unavailable', 'An empty task id cannot be queried.', { charged: 'yes' });
  return call('DescribeTaskDetail', { TaskId: handle });
}

/**
 * Reads the response to a submission. A task id in a 2xx response proves a task, even if the response was cut after it
 * or also contains an error. An error in a 2xx response is a refusal only if its code is returned before anything is
 * created (specification 7, design 5).
 */
export function readSubmission(reply: Reply): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply);
  const whole = bodyOf(reply);
  const body = whole ?? parseCutJson(reply.text);
  const handle = actionTaskIdIn(body);
  const error = callError(body);
  if (handle !== undefined) return { kind: 'accepted', handle, warning: oddity(reply, error) };
  if (error === undefined) return { kind: 'unknown', failure: unreadable(reply, 'task id') };
  const { outcome, failure } = readCallError(reply, error);
  const certain = reply.complete && whole !== undefined;
  if (!certain || outcome === 'unlisted') return { kind: 'unknown', failure };
  return { kind: outcome, failure };
}

function oddity(reply: Reply, error: Json | undefined): string | undefined {
  if (error === undefined) return undefined;
  const { nativeCode, message } = readCallError(reply, error).failure;
  const said = nativeCode === undefined ? message : `${nativeCode}: ${message}`;
  return `The gateway reported an error next to the task id: ${said}.`;
}
