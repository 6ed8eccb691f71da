import {
  bearer,
  type Exchange,
  jsonBody,
  jsonHeaders,
  type Reply,
  type SubmitVerdict,
} from '../../exchange.ts';
import { textAt, type JsonObject, at, parseCutJson, type Json } from '../../json.ts';
import type { Protocol, Quantity } from '../protocol.ts';
import { flags, isRelativePath } from './flags.ts';
import { inlineMedia, readQuery, messageOf } from './observation.ts';
import { MgwError, usageError } from '../../errors.ts';
import { bodyOf, hasError } from '../../http/failures.ts';
import { isSuccess, judgeFailedSubmission, judgeUnreadableSubmission } from '../verdicts.ts';
import { shownValue } from '../violations.ts';

/**
 * Protocol A, the long-running-operation style (specification 2.1, 2.2, 3.1, 4.1). The model is part of the path, not
 * of the body. A composed body contains it as a top-level `model`, so that flags, defaults, `--set`, the fingerprint
 * and the job's record treat it like any other field. `submission` moves it into the path and sends the rest unchanged.
 */
export const a: Protocol = {
  name: 'a',
  about: 'Protocol A: long-running operations (predictLongRunning)',
  examples: [
    'mgw video a submit "a paper boat at sea" -m video-a -d 8 --resolution 720p --audio -o boat.mp4',
    'mgw video a submit "two boats" -m video-a --sample-count 2 -d 4 -o clip.mp4',
    'mgw video a submit "a boat" -m video-a -d 4 --set parameters.seed=7 --dry-run',
  ],
  setExample: 'parameters.seed=7',
  modelMarks: /^(protocol)?a$|longrunning|^veo|geminivideo/,
  auth: bearer,
  flags,
  assetFields: ['instances.*.image.bytesBase64Encoded'],
  inlineAssets: true,
  inlineMedia,
  checks: () => import('./checks.ts'),
  normalize,
  quantityOf,
  modelOf: (body) => textAt(body, 'model'),
  submission,
  readSubmission,
  query,
  readQuery,
  // The gateway returns the URL only when the file exists (specification 3.1).
  notReady: () => false,
};

// Removes the prefix `models/` from the model's name. Some listings include it, but it belongs to the path.
function normalize(body: JsonObject): JsonObject {
  const model = textAt(body, 'model')?.replace(/^models\//, '');
  return model === undefined ? body : { ...body, model };
}

// Returns the number of instances times `sampleCount` (default 1); undefined if the product is not a positive integer.
function videosIn({ instances, parameters }: JsonObject): number | undefined {
  const sampleCount = at(parameters, 'sampleCount') ?? 1;
  const samples = typeof sampleCount === 'string' ? Number(sampleCount) : sampleCount;
  if (typeof samples !== 'number' || !Number.isSafeInteger(samples)) return undefined;
  const videos = (Array.isArray(instances) ? instances.length : 1) * samples;
  return Number.isSafeInteger(videos) && videos >= 1 ? videos : undefined;
}

/**
 * Returns the maximum quantities that a body requests. If the body has no duration, the model chooses one
 * (specification 2.1).
 */
function quantityOf(body: JsonObject): Quantity {
  const videos = videosIn(body);
  const seconds = at(body, 'parameters.durationSeconds');
  const isBounded = videos !== undefined && typeof seconds === 'number';
  return {
    videos,
    isLengthOpen: seconds === undefined,
    ...(isBounded && { seconds: seconds * videos }),
    body,
  };
}

/**
 * Returns the request that submits a body (specification 4.1). `model` moves into the path, percent-encoded. The rest
 * is the body, exactly as composed.
 * @throws MgwError('usage') if the model's name is missing or cannot be used in a path.
 */
function submission(body: JsonObject): Exchange {
  const model = textAt(body, 'model');
  if (model === undefined) throw usageError('No model specified: set --model.');
  if (!isRelativePath(model)) throw usageError(`${shownValue(model)} is not a valid model name.`);
  const path = `/v1beta/models/${encodeURIComponent(model)}:predictLongRunning`;
  return { method: 'POST', path, headers: jsonHeaders, body: jsonBody({ ...body, model: undefined }) };
}

/**
 * Returns the request that queries an operation (specification 4.1) by its complete name with slashes, percent-encoded
 * if necessary. `model` is the submitted model, if known. Refuses an operation of a different model.
 * @throws MgwError('result_unavailable') if the name is invalid.
 */
function query(handle: string, model?: string): Exchange {
  const fault = operationFault(handle, model);
  if (fault === undefined)
    return { method: 'GET', path: `/v1beta/${handle.split('/').map(encodeSegment).join('/')}`, headers: {} };
  const text = `The operation ${shownValue(handle)} cannot be queried: it ${fault}.`;
  throw new MgwError('result_unavailable', text, { charged: 'yes' });
}

/**
 * Reads the response to a submission. A `name` in a 2xx response proves that the operation exists, even if the response
 * was truncated after the name or also contains an error. A task whose name cannot be queried was still accepted and
 * paid for: `warning` reports this, and `query` throws.
 */
function readSubmission(reply: Reply, body: JsonObject): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply, body);
  const operation = bodyOf(reply) ?? parseCutJson(reply.text);
  const handle = textAt(operation, 'name');
  if (handle === undefined) return judgeUnreadableSubmission(reply, 'operation name', body);
  return { kind: 'accepted', handle, warning: warningsIn(handle, operation, textAt(body, 'model')) };
}

function warningsIn(handle: string, answer: Json | undefined, model?: string): string | undefined {
  const fault = operationFault(handle, model);
  const error = at(answer, 'error');
  const notes = [
    ...(hasError(error)
      ? [`The gateway reported an error together with the operation: ${messageOf(error)}.`]
      : []),
    ...(fault === undefined ? [] : [`The operation's name ${fault}, so its result cannot be fetched.`]),
  ];
  return notes.length > 0 ? notes.join(' ') : undefined;
}

// Returns the reason why an operation cannot be queried by its name, phrased to follow "it". The specification's format
// is `models/<model>/operations/<id>` (2.2); longer names with the same ending are accepted. An operation of a
// different model cannot belong to this task.
function operationFault(name: string, model?: string): string | undefined {
  if (/^[a-z][a-z\d+.-]*:/i.test(name)) return 'is an absolute address';
  if (!isRelativePath(name)) return 'does not have the form models/<model>/operations/<id>';
  const modelInName = modelIn(name);
  const isForeign =
    model !== undefined &&
    modelInName !== undefined &&
    modelInName !== model &&
    modelInName !== encodeURIComponent(model);
  return isForeign ? `belongs to a model other than ${shownValue(model)}` : undefined;
}

function modelIn(name: string): string | undefined {
  const end = name.lastIndexOf('/operations/');
  const isLast = end > 0 && !name.slice(end + '/operations/'.length).includes('/');
  return isLast ? /(?:^|\/)models\/([^]+)$/.exec(name.slice(0, end))?.[1] : undefined;
}

// Percent-encodes a path segment. Does not encode characters that RFC 3986 allows, because a gateway may compare names
// without decoding them.
function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replace(/%(24|26|2B|2C|3A|3B|3D|40)/g, decodeURIComponent);
}
