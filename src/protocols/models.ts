import { usageError } from '../errors.ts';
import type { Exchange, Failure, Reply } from '../exchange.ts';
import { bodyOf, readFailure, requestIdOf } from '../http/failures.ts';
import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../json.ts';
import type { Model } from '../exchange.ts';
import type { Protocol } from './protocol.ts';
import { protocols } from './registry.ts';

/** Returns the request that lists the models of the key (specification 4.5). */
export function listModels(): Exchange {
  return { method: 'GET', path: '/v1/models', headers: {} };
}

/**
 * The exchange that requests one model. Gateways respond with 200 even for an unknown model, which {@link readModels}
 * detects.
 * @throws MgwError('usage') if the id cannot be put into a path.
 */
export function getModel(id: string): Exchange {
  if (/^\.{0,2}$|\p{Surrogate}/u.test(id)) throw usageError(`No model can be called ${JSON.stringify(id)}.`);
  return { method: 'GET', path: `/v1/models/${encodeURIComponent(id)}`, headers: {} };
}

/**
 * Reads the response to {@link listModels} or {@link getModel} in the OpenAI, Gemini and Anthropic forms; never throws.
 * Entries without an id are left out, and entries with the same id are merged. An error under HTTP 200 is a failure.
 */
export function readModels(reply: Reply): { models: Model[] } | { failure: Failure } {
  if (reply.status < 200 || reply.status > 299) return { failure: readFailure(reply) };
  if (!reply.complete) return { failure: cut(reply) };
  const body = bodyOf(reply);
  if (saysFailure(body)) return { failure: refusalUnder200(reply) };
  const entries = entriesOf(body);
  return entries === undefined
    ? { failure: unreadable(reply) }
    : { models: merged(entries.filter(isObject).flatMap(modelOf)) };
}

function saysFailure(body: Json | undefined): boolean {
  const error = at(body, 'error');
  const errs = typeof error === 'string' ? error !== '' : isObject(error) && Object.keys(error).length > 0;
  return errs || at(body, 'success') === false;
}

function refusalUnder200(reply: Reply): Failure {
  const failure = readFailure(reply);
  // The gateway reported a failure: the response itself was readable.
  return failure.code === 'bad_reply' ? { ...failure, code: 'server_error' } : failure;
}

// A listing that is too long is not parsed.
function cut(reply: Reply): Failure {
  const message = `the model list broke off, or is too long: ${reply.text.length} characters received`;
  return { code: 'bad_reply', message, requestId: requestIdOf(reply, null) };
}

function unreadable(reply: Reply): Failure {
  const shown = reply.text.trim().slice(0, 200);
  const message =
    shown === '' ? 'an empty response instead of a model list' : `no model list in the response: ${shown}`;
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

// Gemini's form gives `name: models/<id>` in place of an id.
function idOf(entry: JsonObject): string | undefined {
  return idAt(entry, 'id') ?? textAt(entry, 'name')?.replace(/^models\/(?=.)/, '');
}

function createdOf(entry: JsonObject): number | undefined {
  const given = at(entry, 'created') ?? at(entry, 'created_at');
  const seconds = typeof given === 'string' ? Date.parse(given) / 1000 : given;
  return typeof seconds === 'number' && Number.isFinite(seconds) ? seconds : undefined;
}

// Some listings have one entry for each version. Merges all their data.
function merged(models: Model[]): Model[] {
  const byId = new Map<string, Model[]>();
  for (const model of models) {
    const same = byId.get(model.id);
    if (same === undefined) byId.set(model.id, [model]);
    else same.push(model);
  }
  return [...byId.values()].map(mergeSame);
}

function mergeSame(same: Model[]): Model {
  const [first] = same as [Model];
  if (same.length === 1) return first;
  return {
    ...first,
    protocols: unique(same.flatMap((model) => model.protocols)).sort(),
    endpoints: unique(same.flatMap((model) => model.endpoints)),
    model_versions: unique(same.flatMap((model) => model.model_versions)),
  };
}

function unique<T>(values: T[]): T[] {
  return [...new Set(values)];
}

// The specification says that an entry marks its protocol, but not the field or the word (2.7).
const protocolFields = ['protocol', 'protocols', 'supported_protocols', 'video_protocol', 'video_protocols'];
const endpointFields = [
  'supported_endpoint_types',
  'endpoint_types',
  'supported_actions',
  'supportedGenerationMethods',
];

const all: readonly Protocol[] = Object.values(protocols);
const nameKeys = ['name', 'id', 'type', 'protocol'];

/** Every mark of an entry, unchanged and without duplicates. */
function marksOf(entry: JsonObject): string[] {
  return [
    ...new Set(
      [...protocolFields, ...endpointFields].flatMap((field) => textsIn(at(entry, field), nameKeys)),
    ),
  ];
}

/**
 * Returns the protocols that an entry is marked for. A field that names protocols takes precedence over one that names
 * endpoints. Listed versions mark the protocol that has them (specification 2.7), and a model of the specification
 * belongs to its protocol if the entry says nothing else.
 */
function protocolsOf(id: string, entry: JsonObject, hasVersions: boolean): string[] {
  const named = protocolsNamed(entry, protocolFields);
  const found = named.size > 0 ? named : protocolsNamed(entry, endpointFields);
  if (hasVersions) for (const { name } of all.filter((each) => each.hasVersions)) found.add(name);
  if (found.size === 0)
    for (const { name } of all.filter(({ models }) => models?.includes(id))) found.add(name);
  return [...found].sort();
}

function protocolsNamed(entry: JsonObject, fields: string[]): Set<string> {
  return new Set(fields.flatMap((field) => textsIn(at(entry, field), nameKeys)).flatMap(protocolsIn));
}

function protocolsIn(mark: string): string[] {
  const parts = mark.split(/[,;|]/).map((part) => part.toLowerCase().replace(/[^a-z0-9]/g, ''));
  return all.filter(({ modelMarks }) => parts.some((part) => modelMarks.test(part))).map(({ name }) => name);
}

/**
 * Returns the non-empty strings in a string, a number, an object that has one under a key of `keys` (the first such key
 * counts), or an array of these. Looks no deeper, so that no nesting can exhaust the stack.
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
