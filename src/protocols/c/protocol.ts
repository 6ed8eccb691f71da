import {
  bearer,
  type Exchange,
  type Failure,
  jsonBody,
  jsonHeaders,
  type Reply,
  type SubmitVerdict,
} from '../../exchange.ts';
import { textAt, type JsonObject, type Json, isObject, parseCutJson, tryParseJson } from '../../json.ts';
import { maxAssetBytes } from '../flag.ts';
import type { AssetKind, Protocol, Quantity } from '../protocol.ts';
import { flags } from './flags.ts';
import { complete, convertedResolution, needsListing, official, selfHosted, familyOf } from './models.ts';
import { notReady, readQuery } from './observation.ts';
import { MgwError, usageError } from '../../errors.ts';
import { messageIn, readFailure } from '../../http/failures.ts';
import {
  doubtOf,
  taskIdIn,
  isSuccess,
  judgeFailedSubmission,
  judgeUnreadableSubmission,
} from '../verdicts.ts';
import { shownValue } from '../violations.ts';
import { reportsError, stateOf, taskIn, type ReportedTask } from './dialects.ts';

const submitPaths = new Map([
  ['generations', '/v1/video/generations'],
  ['videos', '/v1/videos'],
]);
// The names of the two equivalent submission paths.
const endpoints = [...submitPaths.keys()];

/** Protocol C, the unified task style (specification 2.5, 3.3 and 4.3). */
export const c: Protocol = {
  name: 'c',
  about: 'Protocol C: unified tasks (/v1/video/generations)',
  examples: [
    'mgw video c submit "a paper boat at sea" -m vendor-h3-mini -o boat.mp4',
    'mgw video c submit "a boat" -m vendor-h3 -d 8 --resolution 768P --key boat-1 -o boat.mp4',
    'echo "a paper boat" | mgw video c submit - -m vendor-h3-mini --aspect-ratio 9:16',
    'mgw video c submit "a boat" -m vendor-h3-mini --set seed=7 --dry-run',
  ],
  setExample: 'seconds=5',
  modelMarks: /^(protocol)?c$|unified|openaivideo|videogenerations?$|^(v1)?videos$/,
  models: [...official.models, ...selfHosted.models],
  auth: bearer,
  authSetting: 'cAuth',
  flags,
  assetFields: [
    'image',
    'images.*',
    'last_frame_image_url',
    'reference_image_urls.*',
    'reference_video_urls.*',
    'reference_audio_urls.*',
    'audios.*',
    'input_reference',
  ],
  endpoints,
  needsListing,
  complete,
  checks: () => import('./checks.ts'),
  normalize,
  convertedResolution,
  maxAssetBytes: (kind, model) => {
    const limits: Partial<Record<AssetKind, number>> = maxAssetBytes;
    return familyOf({ model }) === selfHosted ? limits[kind] : undefined;
  },
  quantityOf,
  modelOf: (body) => textAt(body, 'model'),
  submission,
  readSubmission,
  query,
  readQuery: (reply, handle) => readQuery(reply, contentPath(handle)),
  notReady,
};

// Replaces `ratio` with its synonym `aspect_ratio`. Does not change a body that contains both. The checks refuse such a
// body.
function normalize(body: JsonObject): JsonObject {
  if (body['ratio'] === undefined || body['aspect_ratio'] !== undefined) return body;
  const { ratio, ...rest } = body;
  return { ...rest, aspect_ratio: ratio };
}

/**
 * Returns the maximum quantities that a body requests. The declared seconds are billed even if the video is shorter
 * (specification 8).
 */
function quantityOf(body: JsonObject): Quantity {
  const completed: JsonObject = { ...familyOf(body)?.defaults, ...body, ...billedResolution(body) };
  const durations = [body['duration'], body['seconds']].filter((value) => value !== undefined);
  const requested = durations.filter((value) => value !== null);
  const seconds = maxDuration(requested.length > 0 ? requested : [completed['duration']]);
  // A price may depend on the duration. If the duration is uncertain, the highest price applies.
  const usual = familyOf(body) === selfHosted ? null : completed['duration'];
  const duration = requested.length > 1 ? null : (requested[0] ?? usual);
  return {
    videos: 1,
    isLengthOpen: durations.length === 0,
    ...(seconds !== undefined && { seconds }),
    referenceImages: referenceImagesIn(body),
    body: { ...completed, duration },
  };
}

// Returns the longest of the given durations, because the specification does not define which one takes precedence.
// Rounds up, because a model may round a fraction up and bill a whole second.
function maxDuration(durations: readonly (Json | undefined)[]): number | undefined {
  const seconds = durations.map((value) => (typeof value === 'string' ? Number(value) : value));
  return seconds.every((value) => typeof value === 'number') ? Math.ceil(Math.max(...seconds)) : undefined;
}

// Returns the resolution to bill if a body requests one from a self-hosted model. Specification 8 lists only one
// resolution for these models. For any other resolution, the highest price applies.
function billedResolution(body: JsonObject): JsonObject {
  const { resolution } = body;
  if (familyOf(body) !== selfHosted || typeof resolution !== 'string') return {};
  const billed = convertedResolution(body) ?? resolution;
  return billed.toLowerCase() === selfHosted.defaults.resolution
    ? { resolution: billed }
    : { resolution: null };
}

// Counts the reference images. In reference mode, `image` and `input_reference` are reference images too (specification
// 2.5).
function referenceImagesIn(body: JsonObject): number {
  const count = (...fields: string[]): number =>
    fields.reduce((sum, field) => sum + lengthOf(body[field]), 0);
  const mayRefer = body['generation_mode'] === 'r2v' || body['mode'] === 'ref2va' || isDecidedByAssets(body);
  return count('reference_image_urls', 'images') + (mayRefer ? count('image', 'input_reference') : 0);
}

const references = [
  'reference_image_urls',
  'images',
  'reference_video_urls',
  'reference_audio_urls',
  'audios',
];

// Whether a body has references but no mode. The service then infers the mode from the assets (specification 2.5).
function isDecidedByAssets(body: JsonObject): boolean {
  return (body['generation_mode'] ?? '') === '' && references.some((field) => lengthOf(body[field]) > 0);
}

// Returns the length of a list. A single value counts as a list of one.
function lengthOf(list: Json | undefined): number {
  if (Array.isArray(list)) return list.length;
  return list === undefined || list === null ? 0 : 1;
}

/**
 * Returns the request that submits a body (specification 4.3).
 * @throws MgwError('usage') if `endpoint` is unknown.
 */
function submission(body: JsonObject, { endpoint = 'generations' } = {}): Exchange {
  const path = submitPaths.get(endpoint);
  if (path === undefined)
    throw usageError(`--endpoint: ${shownValue(endpoint)} is not allowed; allowed: ${endpoints.join(', ')}`);
  return { method: 'POST', path, headers: jsonHeaders, body: jsonBody(body) };
}

/**
 * Returns the request that queries a task.
 * @throws MgwError('result_unavailable') if the handle cannot be used in a path.
 */
function query(handle: string): Exchange {
  const step = pathStep(handle);
  if (step !== undefined) return { method: 'GET', path: `/v1/video/generations/${step}`, headers: {} };
  const text = `The gateway's task id ${shownValue(handle)} cannot be part of a URL, so the task cannot be queried.`;
  throw new MgwError('result_unavailable', text, { charged: 'yes' });
}

/** Returns the path of a task's result; undefined if the handle cannot be used in a path. */
function contentPath(handle: string): string | undefined {
  const step = pathStep(handle);
  return step && `/v1/videos/${step}/content`;
}

const maxHandleLength = 2048;

// Returns a handle as a path segment; undefined if the handle could change the path. The check is necessary because the
// gateway chooses the handle.
function pathStep(handle: string): string | undefined {
  // Most handles are plain. This check avoids compiling the Unicode classes below.
  if (/^[\w-]{1,64}$/.test(handle)) return handle;
  if (handle.length > maxHandleLength || handle.trim() === '' || handle === '.') return undefined;
  return /[\p{Cc}\p{Cs}?#]|\.\.|:\/\//u.test(handle) ? undefined : encodeURIComponent(handle);
}

/**
 * Reads the response to a submission, in every dialect. A response with a handle is accepted even if it also
 * contains an error.
 */
function readSubmission(reply: Reply, sent: JsonObject): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply, sent);
  const json = tryParseJson(reply.text);
  const isCut = json === undefined;
  const body = json === undefined ? parseCutJson(reply.text) : json;
  const isError = reportsError(body);
  const handle = taskIdIn(body, isCut || isError);
  const task = isObject(body) ? taskIn(body) : undefined;
  if (handle !== undefined)
    return {
      kind: 'accepted',
      handle,
      nativeStatus: task?.word,
      warning: acceptanceWarning(body, isError, isCut),
    };
  if (!isError || isCut || !reply.complete || isCreated(task))
    return judgeUnreadableSubmission(reply, 'task id', sent);
  const failure = readFailure(reply);
  return doubtOf(reply, failure, sent) ?? judgeReportedError(failure);
}

function acceptanceWarning(body: Json | undefined, isError: boolean, isCut: boolean): string | undefined {
  if (isError)
    return `The task was accepted, but the response reports an error: ${messageIn(body) ?? 'no text'}`;
  return isCut ? 'The response was truncated after the task id.' : undefined;
}

// Whether a task was created, even if the response contains no id.
function isCreated(task: ReportedTask | undefined): boolean {
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

// An error with HTTP 200 may hide a created task, unless its message rules this out. Only a code, not a message, is
// reliable enough to justify resending the request.
function judgeReportedError(failure: Failure): SubmitVerdict {
  if (failure.code === 'rate_limited' && limitCodes.test(failure.nativeCode ?? ''))
    return { kind: 'unavailable', failure };
  return { kind: refusals.has(failure.code) ? 'rejected' : 'unknown', failure };
}
