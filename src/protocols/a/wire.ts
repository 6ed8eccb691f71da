import { jsonBody, jsonHeaders, type Exchange, type Reply, type SubmitVerdict } from '../../exchange.ts';
import { bodyOf } from '../../http/failures.ts';
import { at, parseCutJson, textAt, type Json, type JsonObject } from '../../json.ts';
import type { QueryVerdict } from '../protocol.ts';
import { isSuccess, judgeFailedQuery, judgeFailedSubmission, unreadable } from '../verdicts.ts';
import { operationFault, operationPath, submissionPath } from './names.ts';
import { isError, messageOf, observe } from './observation.ts';

/** The model of a composed body, which is no field of what is sent: it travels in the path. */
export function modelOf(body: JsonObject): string | undefined {
  return textAt(body, 'model');
}

/**
 * The exchange that submits (specification 4.1): `model` moves into the path, and all else is the body, exactly
 * as it was composed.
 * @throws MgwError('usage') where the model's name is missing or cannot be put into a path.
 */
export function submission(body: JsonObject): Exchange {
  const sent = { ...body, model: undefined };
  return { method: 'POST', path: submissionPath(modelOf(body)), headers: jsonHeaders, body: jsonBody(sent) };
}

/**
 * The exchange that asks for an operation (specification 4.1), by the whole of its name. `model` is the one that
 * was submitted to, where it is known: a name of another one is not asked for.
 * @throws MgwError('result_unavailable') where the name cannot be asked for.
 */
export function query(handle: string, model?: string): Exchange {
  return { method: 'GET', path: operationPath(handle, model), headers: {} };
}

/**
 * Reads the answer to a submission. A `name` under 2xx proves an operation, also where the answer was cut behind
 * it or holds an error beside it. A name that cannot be asked for was accepted all the same, and paid for: the
 * warning says so, and `query` throws.
 */
export function readSubmission(reply: Reply, body: JsonObject): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply);
  const answer = bodyOf(reply) ?? parseCutJson(reply.text);
  const handle = textAt(answer, 'name');
  if (handle === undefined) return { kind: 'unknown', failure: unreadable(reply, 'operation name') };
  return { kind: 'accepted', handle, warning: oddities(handle, answer, modelOf(body)) };
}

function oddities(handle: string, answer: Json | undefined, model?: string): string | undefined {
  const fault = operationFault(handle, model);
  const error = at(answer, 'error');
  const notes = [
    ...(isError(error) ? [`The gateway reported an error beside the operation: ${messageOf(error)}.`] : []),
    ...(fault === undefined ? [] : [`The operation's name ${fault}, so that its result cannot be fetched.`]),
  ];
  return notes.length > 0 ? notes.join(' ') : undefined;
}

/** Reads the answer to a status query (specification 2.2, 3.1). A cut answer is no news. */
export function readQuery(reply: Reply, handle: string): QueryVerdict {
  if (!isSuccess(reply)) return judgeFailedQuery(reply);
  const body = bodyOf(reply);
  if (!reply.complete || body === undefined)
    return { kind: 'again', failure: unreadable(reply, 'operation') };
  const observation = observe(reply, body, handle);
  if (observation !== undefined) return observation;
  if (at(body, 'error') !== undefined) return judgeFailedQuery(reply);
  return { kind: 'again', failure: unreadable(reply, 'operation') };
}
