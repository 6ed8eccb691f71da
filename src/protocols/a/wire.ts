import { MgwError, usageError } from '../../errors.ts';
import { type Exchange, jsonBody, jsonHeaders, type Reply, type SubmitVerdict } from '../../exchange.ts';
import { bodyOf } from '../../http/failures.ts';
import { at, parseCutJson, textAt, type Json, type JsonObject } from '../../json.ts';
import { isSuccess, judgeFailedSubmission, unreadable } from '../verdicts.ts';
import { shownValue } from '../violations.ts';
import { isError, messageOf } from './observation.ts';

// Longer names are invalid, and would not fit into a request line. A name must not leave or end the path, so it has no
// query, fragment, drive, host, or unprintable character.
const longestName = 2048;
const unsafe = /[?#\\\s\p{Cc}\p{Cf}\p{Cs}]/u;

/** The model of a composed body, which is sent in the path and not in the body. */
export function modelOf(body: JsonObject): string | undefined {
  return textAt(body, 'model');
}

/**
 * The exchange that submits (specification 4.1): `model` moves into the path, percent-encoded, and all else is the
 * body, exactly as it was composed.
 * @throws MgwError('usage') if the model's name is missing or cannot be put into a path.
 */
export function submission(body: JsonObject): Exchange {
  const model = modelOf(body);
  if (model === undefined) throw usageError('No model is given: --model.');
  if (!isModelName(model)) throw usageError(`${shownValue(model)} cannot be the name of a model.`);
  const path = `/v1beta/models/${encodeURIComponent(model)}:predictLongRunning`;
  return { method: 'POST', path, headers: jsonHeaders, body: jsonBody({ ...body, model: undefined }) };
}

/**
 * The request that queries an operation (specification 4.1) by its complete name with slashes, percent-encoded where
 * necessary. `model` is the submitted model, if known; an operation of another model is refused.
 * @throws MgwError('result_unavailable') if the name is invalid.
 */
export function query(handle: string, model?: string): Exchange {
  const fault = operationFault(handle, model);
  if (fault === undefined)
    return { method: 'GET', path: `/v1beta/${handle.split('/').map(encodeSegment).join('/')}`, headers: {} };
  const text = `The operation ${shownValue(handle)} cannot be queried: it ${fault}.`;
  throw new MgwError('result_unavailable', text, { charged: 'yes' });
}

/**
 * Reads the response to a submission. A `name` under 2xx proves an operation, even if the response was cut after it or
 * holds an error next to it. A task whose name cannot be queried was still accepted and paid for: the warning says
 * so, and `query` throws.
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
    ...(isError(error) ? [`The gateway reported an error next to the operation: ${messageOf(error)}.`] : []),
    ...(fault === undefined ? [] : [`The operation's name ${fault}, so that its result cannot be fetched.`]),
  ];
  return notes.length > 0 ? notes.join(' ') : undefined;
}

/** True if a model's name can be put into a path as one segment (specification 4.1). */
export function isModelName(name: string): boolean {
  return isRelativePath(name);
}

function isRelativePath(path: string): boolean {
  const segments = path.split('/');
  return (
    path.length <= longestName &&
    !unsafe.test(path) &&
    !segments.some((segment) => ['', '.', '..'].includes(segment))
  );
}

// The reason why an operation cannot be queried by its name, in words that follow "it". The specification's form is
// `models/<model>/operations/<id>` (2.2); longer names with the same end are accepted. An operation of another model
// cannot belong to this task.
function operationFault(name: string, model?: string): string | undefined {
  if (/^[a-z][a-z\d+.-]*:/i.test(name)) return 'is an absolute address';
  if (!isRelativePath(name)) return 'is not shaped models/<model>/operations/<id>';
  const named = modelIn(name);
  const foreign =
    model !== undefined && named !== undefined && named !== model && named !== encodeURIComponent(model);
  return foreign ? `belongs to another model than ${shownValue(model)}` : undefined;
}

function modelIn(name: string): string | undefined {
  const end = name.lastIndexOf('/operations/');
  const isLast = end > 0 && !name.slice(end + '/operations/'.length).includes('/');
  return isLast ? /(?:^|\/)models\/([^]+)$/.exec(name.slice(0, end))?.[1] : undefined;
}

// Characters that RFC 3986 allows in a segment are not encoded, because a gateway may compare names without decoding
// them.
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(/%(24|26|2B|2C|3A|3B|3D|40)/g, decodeURIComponent);
}
