import { MgwError, usageError } from '../../errors.ts';
import { bearer, jsonBody, jsonHeaders, type Exchange } from '../../exchange.ts';
import { textAt, type JsonObject } from '../../json.ts';
import type { Protocol } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { check, familyOf } from './checks.ts';
import { flags } from './flags.ts';
import { quantityOf } from './quantity.ts';
import { notReady, readQuery, readSubmission } from './wire.ts';

const submitPaths = new Map([
  ['generations', '/v1/video/generations'],
  ['videos', '/v1/videos'],
]);
const longestHandle = 2048;

/** Protocol C, the unified task style (specification 2.5, 3.3 and 4.3). */
export const c: Protocol = {
  name: 'c',
  auth: bearer,
  flags,
  endpoints: [...submitPaths.keys()],
  normalise,
  check,
  advise,
  quantityOf,
  modelOf: (body) => textAt(body, 'model'),
  submission,
  readSubmission,
  query,
  readQuery: (reply, handle) => readQuery(reply, contentPath(handle)),
  notReady,
};

// Both given stay both: `check` refuses them.
function normalise(body: JsonObject): JsonObject {
  if (body['ratio'] === undefined || body['aspect_ratio'] !== undefined) return body;
  const { ratio, ...rest } = body;
  return { ...rest, aspect_ratio: ratio };
}

function advise(body: JsonObject): string[] {
  const family = familyOf(body);
  const notes: string[] = [];
  const left = [];
  if (body['duration'] === undefined && body['seconds'] === undefined) left.push('duration');
  if (body['resolution'] === undefined && family === 'official') left.push('resolution');
  if (left.length > 0) notes.push(`Left to the model's defaults, which may change: ${left.join(', ')}.`);
  const native = ['seconds', 'audios', 'mode'].filter((field) => body[field] !== undefined);
  if (family === 'official' && native.length > 0)
    notes.push(
      `Native fields of the self-hosted models, not known to work with vendor-h3: ${native.join(', ')}.`,
    );
  if (family === 'self-hosted' && body['resolution'] === '768P') notes.push('768P is converted to 720p.');
  return notes;
}

function submission(body: JsonObject, { endpoint = 'generations' } = {}): Exchange {
  const path = submitPaths.get(endpoint);
  if (path === undefined)
    throw usageError(
      `--endpoint: ${shownValue(endpoint)} is not allowed; allowed: ${[...submitPaths.keys()].join(', ')}`,
    );
  return { method: 'POST', path, headers: jsonHeaders, body: jsonBody(body) };
}

function query(handle: string): Exchange {
  const step = pathStep(handle);
  if (step === undefined)
    throw new MgwError(
      'result_unavailable',
      `The gateway's task id ${shownValue(handle)} cannot be put into a path, so the task cannot be asked for.`,
      { charged: 'yes' },
    );
  return { method: 'GET', path: `/v1/video/generations/${step}`, headers: {} };
}

function contentPath(handle: string): string | undefined {
  const step = pathStep(handle);
  return step && `/v1/videos/${step}/content`;
}

// A handle comes from the wire: what could leave its place in the path is not sent.
function pathStep(handle: string): string | undefined {
  if (handle.length > longestHandle || handle.trim() === '' || handle === '.') return undefined;
  return /[\p{Cc}\p{Cs}?#]|\.\.|:\/\//u.test(handle) ? undefined : encodeURIComponent(handle);
}
