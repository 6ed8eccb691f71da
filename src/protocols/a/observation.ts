import type { Failure, Reply } from '../../exchange.ts';
import { classify, requestIdOf } from '../../http/failures.ts';
import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../../json.ts';
import type { Observation } from '../protocol.ts';
import { shownValue } from '../violations.ts';
import { resultOf, samplesOf } from './samples.ts';

type Outcome = Pick<Observation, 'state' | 'results' | 'unproven' | 'failure' | 'warning'>;

/**
 * The state of an operation (specification 2.2, 3.1); undefined where the body is none. An absent `done` is
 * false, and only `true` itself is finished. An `error` with neither a code nor words is no error.
 */
export function observe(reply: Reply, body: Json | undefined, handle: string): Observation | undefined {
  if (!isObject(body) || !['name', 'done', 'response'].some((member) => at(body, member) !== undefined))
    return undefined;
  const outcome = body.done === true ? finished(reply, body) : unfinished(body);
  const warning = [outcome.warning, foreignName(body, handle)].filter((text) => text !== undefined).join(' ');
  return {
    kind: 'observation',
    nativeStatus: body.done === undefined ? '' : `done=${shownValue(body.done)}`,
    ...outcome,
    warning: warning === '' ? undefined : warning,
    requestId: requestIdOf(reply, body),
  };
}

function unfinished({ done, error, response }: JsonObject): Outcome {
  const early = [isError(error) ? 'an error' : '', isObject(response) ? 'a response' : ''].filter(Boolean);
  const odd =
    done === undefined || typeof done === 'boolean' ? [] : ['a "done" that is neither true nor false'];
  const oddities = [...early, ...odd].join(' and ');
  const words = isError(error) ? ` (${messageOf(error)})` : '';
  const warning = oddities === '' ? undefined : `The operation shows ${oddities}, and is not done${words}.`;
  return { state: 'running', results: [], warning };
}

function finished(reply: Reply, body: JsonObject): Outcome {
  const { error, response } = body;
  if (isError(error)) return { state: 'failed', results: [], failure: failureOf(error, reply, body) };
  if (!isObject(response))
    return unproven('The operation is done, with neither an error nor a response: the result is unproven.');
  const samples = samplesOf(response);
  if (samples === undefined) return unproven('The list of samples is no list: the result is unproven.');
  if (samples.length === 0)
    return { state: 'failed', results: [], failure: noSamples(response, reply, body) };
  return fetchable(samples, response, reply);
}

function unproven(warning: string): Outcome {
  return { state: 'succeeded', results: [], unproven: true, warning };
}

function fetchable(samples: Json[], response: Json, reply: Reply): Outcome {
  const read = samples.map((sample) => resultOf(sample, reply));
  const reasons = filtered(response);
  // A sample with nothing to fetch stays a result without sources: that it is missing must not go unseen.
  const faults = read.flatMap(({ fault }, index) =>
    fault === undefined ? [] : [`Sample ${index + 1} of ${read.length} ${fault}.`],
  );
  const notes = [...(reasons === undefined ? [] : [`Some videos were filtered: ${reasons}.`]), ...faults];
  const results = read.map(({ result }) => result);
  return { state: 'succeeded', results, warning: notes.length > 0 ? notes.join(' ') : undefined };
}

function noSamples(response: Json, reply: Reply, body: Json): Failure {
  const reasons = filtered(response);
  const requestId = requestIdOf(reply, body);
  if (reasons !== undefined)
    return { code: 'content_policy', message: `The video was filtered: ${reasons}`, requestId };
  return { code: 'task_failed', message: 'The operation is done and its response holds no video', requestId };
}

/** What the safety filter took away, in words; undefined where it took nothing. */
function filtered(response: Json): string | undefined {
  const places = ['generateVideoResponse.', ''];
  const found = (name: string) => places.map((place) => at(response, place + name)).find((value) => value);
  const count = Number(found('raiMediaFilteredCount') ?? 0);
  const listed = [found('raiMediaFilteredReasons') ?? []].flat();
  const reasons = listed
    .filter((reason) => typeof reason === 'string' || typeof reason === 'number')
    .join('; ');
  if (reasons !== '') return reasons;
  return count > 0 ? `${count} without a reason given` : undefined;
}

// The name is the task's own; a mapped or mistaken one is told, and decides nothing.
function foreignName({ name }: JsonObject, handle: string): string | undefined {
  if (name === undefined || name === handle) return undefined;
  return `The answer is about ${shownValue(name)}, not the operation that was asked for.`;
}

/** True for an `error` that says something: a Go relay sends an empty one beside a success. */
export function isError(error: Json | undefined): boolean {
  if (!isObject(error)) return error !== undefined && error !== null && error !== '' && error !== false;
  const code = at(error, 'code') ?? 0;
  return (code !== 0 && code !== '0' && code !== '') || textAt(error, 'message') !== undefined;
}

/** An operation's `error` in words: its own, or the name of its code. */
export function messageOf(error: Json | undefined): string {
  if (typeof error === 'string') return error;
  const code = idAt(error, 'code');
  const name = textAt(error, 'status') ?? (code === undefined ? undefined : rpcNames[Number(code)]);
  return textAt(error, 'message') ?? `error ${[code, name].filter(Boolean).join(' ')} without a message`;
}

// The task's money is spent whatever the code is: only the content policy is told apart (specification 7).
function failureOf(error: Json | undefined, reply: Reply, body: Json): Failure {
  const message = messageOf(error);
  const policy = classify(message, 400) === 'content_policy';
  const nativeCode = idAt(error, 'code') ?? textAt(error, 'status');
  return {
    code: policy ? 'content_policy' : 'task_failed',
    message,
    nativeCode,
    requestId: requestIdOf(reply, body),
  };
}

// google.rpc.Code
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
