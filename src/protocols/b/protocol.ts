import {
  bearer,
  type Model,
  type Exchange,
  jsonBody,
  jsonHeaders,
  type Reply,
  type SubmitVerdict,
} from '../../exchange.ts';
import { textAt, type JsonObject, at, type Json, parseCutJson } from '../../json.ts';
import { listOf } from '../../printable.ts';
import type { Protocol, Quantity, ListingUse, Violation } from '../protocol.ts';
import { withReturnUsage } from './ext-info.ts';
import { flags } from './flags.ts';
import { readQuery, callError, readCallError } from './observation.ts';
import { usageError, MgwError } from '../../errors.ts';
import { shownValue, violationMessage } from '../violations.ts';
import { bodyOf } from '../../http/failures.ts';
import {
  actionTaskIdIn,
  doubtOf,
  isSuccess,
  judgeFailedSubmission,
  judgeUnreadableSubmission,
} from '../verdicts.ts';

/** Protocol B, the cloud-action style at the root path (specification 2.3, 2.4, 3.2, 4.2). */
export const b: Protocol = {
  name: 'b',
  about: 'Protocol B: cloud actions (CreateAigcVideoTask)',
  examples: [
    'mgw video b submit "a paper boat at sea" -m Video-B --model-version 2.0 -d 5 -o boat.mp4',
    'mgw video b submit "a boat" -m Video-B --model-version 2.0 --resolution 720P --no-audio --wait',
    'mgw video b submit "a boat" -m Video-B --model-version 2.0 --set OutputConfig.Duration=5 --dry-run',
  ],
  setExample: 'OutputConfig.Duration=5',
  modelMarks: /^(protocol)?b$|cloudaction|aigc|^(tencent)?vod$/,
  hasVersions: true,
  auth: bearer,
  flags,
  assetFields: ['FileInfos.*.Url'],
  needsListing,
  complete,
  checks: () => import('./checks.ts'),
  normalize,
  quantityOf,
  modelOf: (body) => textAt(body, 'ModelName'),
  submission,
  readSubmission,
  query,
  readQuery,
  // The result is a plain file on a different host. The host never reports that a file is not ready yet.
  notReady: () => false,
};

// Moves `ReturnUsage`, which `--return-usage` sets and the gateway does not recognize, into `ExtInfo`.
function normalize(body: JsonObject): JsonObject {
  const { ReturnUsage: isRequested, ...rest } = body;
  if (isRequested === false) return rest;
  const merged = isRequested === true ? withReturnUsage(body['ExtInfo']) : undefined;
  return merged === undefined ? body : { ...rest, ExtInfo: merged };
}

/**
 * Returns the maximum quantities that a body requests. If the body has no duration, the model chooses one
 * (specification 2.3).
 */
function quantityOf(body: JsonObject): Quantity {
  const seconds = at(body, 'OutputConfig.Duration');
  return {
    videos: 1,
    isLengthOpen: seconds === undefined,
    ...(typeof seconds === 'number' && { seconds }),
    referenceImages: referenceImagesIn(body['FileInfos']),
    body,
  };
}

// Counts every file that is not marked as a first frame, because the gateway decides how to use a file without a Usage
// (specification 2.3).
function referenceImagesIn(files: Json | undefined): number {
  if (!Array.isArray(files)) return 0;
  return files.filter((file) => at(file, 'Usage') !== 'FirstFrame').length;
}

const maxListed = 12;

/** Returns a model's versions from the model list; empty if the model or its versions are not listed. */
export function versionsOf(model: string, models: readonly Model[]): string[] {
  return models.find(({ id }) => id === model)?.model_versions ?? [];
}

/** If the body specifies a model, the model list supplies a missing version or checks the given one. */
function needsListing(body: JsonObject): ListingUse | undefined {
  if (textAt(body, 'ModelName') === undefined) return undefined;
  return body['ModelVersion'] === undefined ? 'fill' : 'check';
}

/**
 * Returns the body, and adds a missing version if the model list contains only one version of the model (design 7).
 * @throws MgwError('usage') if the model list contradicts the model or version, or if the version is missing and the
 * model list contains several. The message lists the choices.
 */
export function complete(body: JsonObject, models: readonly Model[]): JsonObject {
  const versions = versionsOf(textAt(body, 'ModelName') ?? '', models);
  const isVersionMissing = body['ModelVersion'] === undefined;
  const [onlyVersion] = versions;
  const violations =
    isVersionMissing && versions.length > 1 ? [wrongVersion('', versions)] : checkVersion(body, models);
  if (violations.length > 0) throw usageError(violationMessage(violations, textAt(body, 'ModelName')));
  return isVersionMissing && onlyVersion !== undefined ? { ...body, ModelVersion: onlyVersion } : body;
}

/**
 * Returns a violation if the model list does not contain the model or its version (specification 2.3, 2.7). Versions
 * are compared as exact text, because no version can replace another (specification 8). Any version is accepted if the
 * model list contains no versions. Ignores a missing model or version, because `check` reports it.
 */
export function checkVersion(body: JsonObject, models: readonly Model[]): Violation[] {
  const name = textAt(body, 'ModelName');
  if (name === undefined) return [];
  if (!models.some(({ id }) => id === name)) return [unknownModel(name, models)];
  const version = textAt(body, 'ModelVersion');
  const versions = versionsOf(name, models);
  if (version === undefined || versions.length === 0 || versions.includes(version)) return [];
  return [wrongVersion(shownValue(version), versions)];
}

function wrongVersion(value: string, versions: readonly string[]): Violation {
  return { field: 'ModelVersion', value, allowed: listSome(versions), flag: '--model-version' };
}

function unknownModel(name: string, models: readonly Model[]): Violation {
  const servedModels = models.filter(({ protocols }) => protocols.length === 0 || protocols.includes('b'));
  const ids = servedModels.map(({ id }) => id);
  const sameName = ids.filter((id) => id.toLowerCase() === name.toLowerCase());
  const versioned = models.filter((model) => model.model_versions.length > 0).map(({ id }) => id);
  const candidates = [sameName, versioned, ids].find((list) => list.length > 0) ?? [];
  const allowed =
    candidates.length === 0 ? 'a model in the model list, which is empty' : listSome(candidates);
  return { field: 'ModelName', value: shownValue(name), allowed, flag: '--model' };
}

function listSome(values: readonly string[]): string {
  return listOf(values.map(shownValue), maxListed);
}

type Action = 'CreateAigcVideoTask' | 'DescribeTaskDetail';

// The path is the root (specification 4.2). The version header contains the API's version, not the model's.
function call(action: Action, body: JsonObject): Exchange {
  const headers = { ...jsonHeaders, 'X-TC-Version': '2018-07-17', 'X-TC-Action': action };
  return { method: 'POST', path: '/', headers, body: jsonBody(body) };
}

/** Returns the request that creates a task (specification 4.2). */
function submission(body: JsonObject): Exchange {
  return call('CreateAigcVideoTask', body);
}

/**
 * Returns the request that queries a task. The task id is in the body, so it may be any text.
 * @throws MgwError('result_unavailable') if the handle is blank.
 */
function query(handle: string): Exchange {
  if (handle.trim() === '')
    throw new MgwError('result_unavailable', 'An empty task id cannot be queried.', { charged: 'yes' });
  return call('DescribeTaskDetail', { TaskId: handle });
}

/**
 * Reads the response to a submission. A task id in a 2xx response proves that the task exists, even if the response was
 * truncated after the id or also contains an error. An error in a 2xx response is a refusal only if its code is
 * returned before anything is created (specification 7, design 5).
 */
function readSubmission(reply: Reply, sent: JsonObject): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply, sent);
  const json = bodyOf(reply);
  const body = json ?? parseCutJson(reply.text);
  const handle = actionTaskIdIn(body);
  const error = callError(body);
  if (handle !== undefined) return { kind: 'accepted', handle, warning: errorWarning(reply, error) };
  if (error === undefined) return judgeUnreadableSubmission(reply, 'task id', sent);
  const { outcome, failure } = readCallError(reply, error);
  const isCertain = reply.complete && json !== undefined && outcome !== 'unlisted';
  return doubtOf(reply, failure, sent) ?? { kind: isCertain ? outcome : 'unknown', failure };
}

function errorWarning(reply: Reply, error: Json | undefined): string | undefined {
  if (error === undefined) return undefined;
  const { nativeCode, message } = readCallError(reply, error).failure;
  const description = nativeCode === undefined ? message : `${nativeCode}: ${message}`;
  return `The gateway reported an error together with the task id: ${description}.`;
}
