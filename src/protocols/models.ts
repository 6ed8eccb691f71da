import { usageError } from '../errors.ts';
import type { Exchange, Failure, Reply } from '../exchange.ts';
import { bodyOf, excerptOf, hasError, readFailure, requestIdOf } from '../http/failures.ts';
import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../json.ts';
import type { Model } from '../exchange.ts';
import type { Protocol } from './protocol.ts';
import { protocols } from './registry.ts';
import { notFoundFailure } from './verdicts.ts';

/**
 * Returns the request that lists the models that the key can use (specification 4.5).
 * @param page the query of another page, from {@link readModels}
 */
export function listModels(page = ''): Exchange {
  return { method: 'GET', path: `/v1/models${page}`, headers: {} };
}

/**
 * Returns the request for one model. Gateways respond with 200 even if the model is unknown. {@link readModels} detects
 * this.
 * @throws MgwError('usage') if the id cannot be used in a path.
 */
export function getModel(id: string): Exchange {
  if (/^\.{0,2}$|\p{Surrogate}/u.test(id))
    throw usageError(`${JSON.stringify(id)} is not a valid model name.`);
  return { method: 'GET', path: `/v1/models/${encodeURIComponent(id)}`, headers: {} };
}

/**
 * Reads the response to {@link listModels} or {@link getModel} in the OpenAI, Gemini and Anthropic forms; never throws.
 * Omits entries without an id, and merges entries with the same id. An error with HTTP 200 is a failure. `nextPage` is
 * the query of the next page; undefined if the list is complete.
 */
export function readModels(
  reply: Reply,
): { models: Model[]; nextPage?: string | undefined } | { failure: Failure } {
  if (reply.status < 200 || reply.status > 299) return { failure: statusFailure(reply) };
  const body = bodyOf(reply);
  if (body === undefined && !reply.complete) return { failure: cutFailure(reply) };
  if (saysFailure(body)) return { failure: refusalUnder200(reply) };
  const entries = entriesOf(body);
  const models = mergeById((entries ?? []).filter(isObject).flatMap(modelOf));
  // A list without a single readable entry proves nothing about the key's models.
  if (models.length === 0 && entries?.length !== 0) return { failure: unreadableFailure(reply) };
  return { models, nextPage: nextPageOf(body, models) };
}

// Returns the query of the next page; undefined if there is none. Uses only the query of the gateway's address for the
// page, so that the key is not sent to a different host or path.
function nextPageOf(body: Json | undefined, models: readonly Model[]): string | undefined {
  const lastId = at(body, 'has_more') === true ? (idAt(body, 'last_id') ?? models.at(-1)?.id) : undefined;
  const cursors: [parameter: string, value: string | undefined][] = [
    ['pageToken', textAt(body, 'nextPageToken')],
    ['page_token', textAt(body, 'next_page_token')],
    // OpenAI's format has `object`, and its parameter is `after`. Anthropic's has no `object`, and its parameter is
    // `after_id`.
    [at(body, 'object') === 'list' ? 'after' : 'after_id', lastId],
  ];
  for (const [name, value] of cursors)
    if (value !== undefined) return `?${new URLSearchParams({ [name]: value }).toString()}`;
  const next = textAt(body, 'next') ?? '';
  const isAddress = next.includes('?') && URL.canParse(next, 'https://gateway.invalid');
  return isAddress ? new URL(next, 'https://gateway.invalid').search : undefined;
}

function statusFailure(reply: Reply): Failure {
  const failure = readFailure(reply);
  if (reply.status === 404) return notFoundFailure(failure);
  if (reply.status >= 400) return failure;
  const target = reply.headers['location'] ?? 'an unspecified address';
  const message = `HTTP ${reply.status}: the gateway redirects the model list to ${target}, and mgw does not follow redirects. Check the base URL: mgw adds /v1 itself.`;
  return { ...failure, message };
}

function saysFailure(body: Json | undefined): boolean {
  return hasError(at(body, 'error')) || at(body, 'success') === false;
}

function refusalUnder200(reply: Reply): Failure {
  const failure = readFailure(reply);
  // `bad_reply` is for unreadable responses. This response is readable, and reports a failure.
  return failure.code === 'bad_reply' ? { ...failure, code: 'server_error' } : failure;
}

// Returns the failure for a model list that is truncated or too long. Such a list is not parsed.
function cutFailure(reply: Reply): Failure {
  const message = `the model list is truncated or too long: ${reply.text.length} characters received`;
  return { code: 'bad_reply', message, requestId: requestIdOf(reply, null) };
}

function unreadableFailure(reply: Reply): Failure {
  const excerpt = excerptOf(reply.text);
  const message =
    excerpt === ''
      ? 'an empty response instead of a model list'
      : `no model list in the response: ${excerpt}`;
  return { ...readFailure(reply), code: 'bad_reply', message };
}

function entriesOf(body: Json | undefined): Json[] | undefined {
  const list = at(body, 'data') ?? at(body, 'models');
  if (Array.isArray(list)) return list;
  const single = isObject(body) && list === undefined && idOf(body) !== undefined;
  return single ? [body] : undefined;
}

function modelOf(entry: JsonObject): Model[] {
  const id = idOf(entry);
  if (id === undefined) return [];
  const versions = unique(textsIn(at(entry, 'model_versions'), ['version', 'id', 'name']));
  return [
    {
      id,
      protocols: protocolsOf(id, entry, versions.length > 0),
      endpoints: marksOf(entry),
      model_versions: versions,
      owned_by: textAt(entry, 'owned_by'),
      created: createdOf(entry),
      raw: entry,
    },
  ];
}

// Returns an entry's id. Gemini's format contains `name: models/<id>` instead of an id.
function idOf(entry: JsonObject): string | undefined {
  return idAt(entry, 'id') ?? textAt(entry, 'name')?.replace(/^models\/(?=.)/, '');
}

function createdOf(entry: JsonObject): number | undefined {
  const created = at(entry, 'created') ?? at(entry, 'created_at');
  const seconds = typeof created === 'string' ? Date.parse(created) / 1000 : created;
  return typeof seconds === 'number' && Number.isFinite(seconds) ? seconds : undefined;
}

/** Merges entries with the same id, because some listings contain one entry for each version. */
export function mergeById(models: Model[]): Model[] {
  const byId = new Map<string, Model[]>();
  for (const model of models) {
    const entries = byId.get(model.id);
    if (entries === undefined) byId.set(model.id, [model]);
    else entries.push(model);
  }
  return [...byId.values()].map(mergeSame);
}

// Merges all entries at once: merging them one by one would take quadratic time.
function mergeSame(entries: Model[]): Model {
  const [first] = entries as [Model];
  if (entries.length === 1) return first;
  return {
    ...first,
    protocols: unique(entries.flatMap((model) => model.protocols)).sort(),
    endpoints: unique(entries.flatMap((model) => model.endpoints)),
    model_versions: unique(entries.flatMap((model) => model.model_versions)),
  };
}

function unique<T>(values: T[]): T[] {
  return [...new Set(values)];
}

// The specification states that an entry is marked with its protocol, but does not define the field or the value (2.7).
const protocolFields = ['protocol', 'protocols', 'supported_protocols', 'video_protocol', 'video_protocols'];
const endpointFields = [
  'supported_endpoint_types',
  'endpoint_types',
  'supported_actions',
  'supportedGenerationMethods',
];

const allProtocols: readonly Protocol[] = Object.values(protocols);
const nameKeys = ['name', 'id', 'type', 'protocol'];

/** Returns every mark of an entry, unchanged and without duplicates. */
function marksOf(entry: JsonObject): string[] {
  return unique(
    [...protocolFields, ...endpointFields].flatMap((field) => textsIn(at(entry, field), nameKeys)),
  );
}

/**
 * Returns the protocols that an entry is marked for. A field with protocols takes precedence over a field with
 * endpoints. Listed versions imply the protocol that has versions (specification 2.7). An unmarked model belongs to the
 * protocol that the specification assigns it to.
 */
function protocolsOf(id: string, entry: JsonObject, hasVersions: boolean): string[] {
  const byField = protocolsNamed(entry, protocolFields);
  const names = byField.size > 0 ? byField : protocolsNamed(entry, endpointFields);
  if (hasVersions) for (const { name } of allProtocols.filter((each) => each.hasVersions)) names.add(name);
  if (names.size === 0)
    for (const { name } of allProtocols.filter(({ models }) => models?.includes(id))) names.add(name);
  return [...names].sort();
}

function protocolsNamed(entry: JsonObject, fields: string[]): Set<string> {
  return new Set(fields.flatMap((field) => textsIn(at(entry, field), nameKeys)).flatMap(protocolsIn));
}

function protocolsIn(mark: string): string[] {
  const parts = mark.split(/[,;|]/).map((part) => part.toLowerCase().replace(/[^a-z0-9]/g, ''));
  return allProtocols
    .filter(({ modelMarks }) => parts.some((part) => modelMarks.test(part)))
    .map(({ name }) => name);
}

/**
 * Returns the texts in a string, a number, an object, or an array of these. The text of an object is its first text
 * under one of `keys`, in the order of `keys`. Omits empty strings. Does not look deeper, so that nesting cannot
 * exhaust the stack.
 */
function textsIn(value: Json | undefined, keys: string[]): string[] {
  if (value === undefined || value === null) return [];
  const list = Array.isArray(value) ? value : [value];
  return list
    .flatMap((entry) => {
      const candidates = isObject(entry) ? keys.map((key) => at(entry, key)) : [entry];
      return candidates
        .filter((text) => (typeof text === 'string' && text !== '') || typeof text === 'number')
        .slice(0, 1);
    })
    .map(String);
}
