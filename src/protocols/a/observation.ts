import type { Failure, Reply } from '../../exchange.ts';
import { bodyOf, hasError, requestIdOf } from '../../http/failures.ts';
import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../../json.ts';
import type { Observation, QueryVerdict, Result, Source } from '../protocol.ts';
import { isSuccess, judgeFailedQuery, inconclusive, taskFailure } from '../verdicts.ts';
import { shownValue } from '../violations.ts';

/**
 * Members whose strings are the video itself: `encodedVideo` (specification 2.2), and other members that gateways pass
 * on from the upstream. Every string under these names must be diverted while the response streams, even a short
 * string. A video that remains in the text cannot be saved.
 */
export const inlineMedia = ['encodedVideo', 'bytesBase64Encoded', 'videoBytes', 'video'] as const;

// The possible paths of the samples, with the specification's path first.
const samplePaths = [
  'generateVideoResponse.generatedSamples',
  'generateVideoResponse.generatedVideos',
  'generatedSamples',
  'generatedVideos',
  'videos',
];
const addressPaths = ['video.uri', 'uri', 'video.gcsUri', 'gcsUri'];
const typePaths = ['video.encoding', 'video.mimeType', 'encoding', 'mimeType'];

type Outcome = Pick<Observation, 'state' | 'results' | 'unproven' | 'failure' | 'warning'>;

/**
 * Reads the response to a status query (specification 2.2, 3.1). A truncated response is not valid JSON, so it proves
 * nothing about the task. A valid one counts even if its length was wrong.
 */
export function readQuery(reply: Reply, handle: string): QueryVerdict {
  if (!isSuccess(reply)) return judgeFailedQuery(reply);
  const body = bodyOf(reply);
  if (!isObject(body)) {
    const text = reply.text.replace(/mgw-spool:\d+/g, '…');
    return inconclusive({ ...reply, text }, 'operation');
  }
  if (['name', 'done', 'response'].some((member) => body[member] !== undefined))
    return observe(reply, body, handle);
  return body['error'] === undefined ? inconclusive(reply, 'operation') : judgeFailedQuery(reply);
}

// Treats an absent `done` as false. Only `true` means finished. Ignores an `error` with neither a code nor a message.
function observe(reply: Reply, body: JsonObject, handle: string): Observation {
  const outcome = body.done === true ? readFinished(reply, body) : readUnfinished(body);
  const warning = [outcome.warning, foreignNameWarning(body, handle)]
    .filter((text) => text !== undefined)
    .join(' ');
  return {
    kind: 'observation',
    nativeStatus: body.done === undefined ? '' : `done=${shownValue(body.done)}`,
    ...outcome,
    warning: warning === '' ? undefined : warning,
    requestId: requestIdOf(reply, body),
  };
}

function readUnfinished({ done, error, response }: JsonObject): Outcome {
  const earlyMembers = [hasError(error) ? 'an error' : '', isObject(response) ? 'a response' : ''].filter(
    Boolean,
  );
  const invalidDone =
    done === undefined || typeof done === 'boolean' ? [] : ['a "done" that is neither true nor false'];
  const problems = [...earlyMembers, ...invalidDone].join(' and ');
  const errorText = hasError(error) ? ` (${messageOf(error)})` : '';
  const warning =
    problems === '' ? undefined : `The operation contains ${problems}, but is not done${errorText}.`;
  return { state: 'running', results: [], warning };
}

function readFinished(reply: Reply, body: JsonObject): Outcome {
  const { error, response } = body;
  if (hasError(error)) {
    const code = idAt(error, 'code') ?? textAt(error, 'status');
    return { state: 'failed', results: [], failure: taskFailure(reply, body, messageOf(error), code) };
  }
  if (!isObject(response))
    return unprovenOutcome(
      'The operation is done but has neither an error nor a response, so its success is unproven.',
    );
  const samples = samplesOf(response);
  if (samples === undefined)
    return unprovenOutcome('The field "samples" is not a list, so the success of the operation is unproven.');
  if (samples.length === 0)
    return { state: 'failed', results: [], failure: noSamples(response, reply, body) };
  return fetchableOutcome(samples, response, reply);
}

function unprovenOutcome(warning: string): Outcome {
  return { state: 'succeeded', results: [], unproven: true, warning };
}

function fetchableOutcome(samples: Json[], response: Json, reply: Reply): Outcome {
  const parsed = samples.map((sample) => resultOf(sample, reply));
  const reasons = filterReasons(response);
  // A sample with nothing to fetch becomes a result without sources, so that it is still reported.
  const faults = parsed.flatMap(({ fault }, index) =>
    fault === undefined ? [] : [`Sample ${index + 1} of ${parsed.length} ${fault}.`],
  );
  const notes = [...(reasons === undefined ? [] : [`Some videos were filtered: ${reasons}.`]), ...faults];
  const results = parsed.map(({ result }) => result);
  return { state: 'succeeded', results, warning: notes.length > 0 ? notes.join(' ') : undefined };
}

function noSamples(response: Json, reply: Reply, body: Json): Failure {
  const reasons = filterReasons(response);
  if (reasons === undefined)
    return taskFailure(reply, body, 'The operation is done, but its response contains no video');
  const failure = taskFailure(reply, body, `The video was filtered: ${reasons}`);
  return { ...failure, code: 'content_policy' };
}

/** Returns the safety filter's reasons for removing videos; undefined if no video was removed. */
function filterReasons(response: Json): string | undefined {
  const prefixes = ['generateVideoResponse.', ''];
  const valueOf = (name: string) =>
    prefixes.map((place) => at(response, place + name)).find((value) => value);
  const count = Number(valueOf('raiMediaFilteredCount') ?? 0);
  const listed = [valueOf('raiMediaFilteredReasons') ?? []].flat();
  const reasons = listed
    .filter((reason) => typeof reason === 'string' || typeof reason === 'number')
    .join('; ');
  if (reasons !== '') return reasons;
  return count > 0 ? `${count} without a reason` : undefined;
}

// Returns a warning if the response is for a different operation; otherwise undefined. The mismatch has no other
// effect.
function foreignNameWarning({ name }: JsonObject, handle: string): string | undefined {
  if (name === undefined || name === handle) return undefined;
  return `The response is for ${shownValue(name)}, not the requested operation.`;
}

// Returns the samples of an operation's `response`; undefined if the value at their path is not a list.
function samplesOf(response: Json): Json[] | undefined {
  const holder = at(response, 'generateVideoResponse') ?? {};
  const candidates = samplePaths.map((path) => at(response, path) ?? []);
  if (!isObject(holder) || !candidates.every((list) => Array.isArray(list))) return undefined;
  const samples = candidates.find((list) => list.length > 0);
  if (samples !== undefined) return samples;
  return inlineOf(response) === undefined && !isObject(at(response, 'video')) ? [] : [response];
}

// Converts a sample to a file to fetch. `fault` is the sample's problem, if any, phrased to follow "Sample 1".
function resultOf(sample: Json, reply: Reply): { result: Result; fault?: string } {
  const mime = typePaths.map((path) => textAt(sample, path)).find((type) => type?.includes('/'));
  const inline = inlineSource(sample, reply);
  const addresses = addressPaths
    .map((path) => textAt(sample, path))
    .filter((address) => address !== undefined);
  const sources = [inline.source, ...addresses.map(addressSource)].filter((source) => source !== undefined);
  const fault = inline.fault ?? (sources.length === 0 ? describeUnfetchable(addresses) : undefined);
  return { result: { sources, mime }, fault };
}

// Describes a sample that cannot be fetched. Hides the query, which may contain a signature. `shownValue` hides a
// password before an @.
function describeUnfetchable([address]: string[]): string {
  if (address === undefined) return 'has neither content nor a URL to fetch';
  return `is at ${shownValue(address.replace(/[?#].*$/s, '?…'))}, which cannot be fetched`;
}

function inlineOf(sample: Json): string | undefined {
  const paths = inlineMedia.flatMap((name) => [`video.${name}`, name]);
  return paths.map((path) => textAt(sample, path)).find((text) => text !== undefined);
}

function inlineSource(sample: Json, reply: Reply): { source?: Source; fault?: string } {
  const marker = inlineOf(sample);
  if (marker === undefined) return {};
  const index = Number(/^mgw-spool:(\d+)$/.exec(marker)?.[1]);
  const media = reply.spooled?.[index];
  if (media === undefined) return { fault: 'is broken: the content was not saved as it arrived' };
  return media.fault === undefined
    ? { source: { kind: 'inline', index } }
    : { fault: `is broken: ${media.fault}` };
}

// Returns the source for a sample's address; undefined if the address is invalid. Keeps the address unchanged, because
// it may be signed (specification 4.1, "the complete video.uri").
function addressSource(address: string): Source | undefined {
  if (/[\s\\\p{Cc}\p{Cf}]/u.test(address)) return undefined;
  if (/^https?:\/\//i.test(address) && URL.canParse(address))
    return { kind: 'url', url: address, key: 'own-site' };
  return /^\/[^/]/.test(address) ? { kind: 'gateway', path: address } : undefined;
}

/** Returns the message of an operation's `error`, or its code's name if there is no message. */
export function messageOf(error: Json | undefined): string {
  if (typeof error === 'string') return error;
  const code = idAt(error, 'code');
  const name = textAt(error, 'status') ?? (code === undefined ? undefined : rpcNames[Number(code)]);
  return textAt(error, 'message') ?? `error ${[code, name].filter(Boolean).join(' ')} without a message`;
}

// The names of google.rpc.Code, by number.
const rpcNames = [
  'OK',
  'CANCELLED',
  'UNKNOWN',
  'INVALID_ARGUMENT',
  'DEADLINE_EXCEEDED',
  'NOT_FOUND',
  'ALREADY_EXISTS',
  'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED',
  'FAILED_PRECONDITION',
  'ABORTED',
  'OUT_OF_RANGE',
  'UNIMPLEMENTED',
  'INTERNAL',
  'UNAVAILABLE',
  'DATA_LOSS',
  'UNAUTHENTICATED',
];
