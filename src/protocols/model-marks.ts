import { at, isObject, type Json, type JsonObject } from '../json.ts';
import type { Protocol } from './protocol.ts';
import { protocols } from './registry.ts';

// The specification says that an entry marks its protocol, and not in which field or by which word (2.7).
const protocolFields = ['protocol', 'protocols', 'supported_protocols', 'video_protocol', 'video_protocols'];
const endpointFields = [
  'supported_endpoint_types',
  'endpoint_types',
  'supported_actions',
  'supportedGenerationMethods',
];

const all: readonly Protocol[] = Object.values(protocols);
const nameKeys = ['name', 'id', 'type', 'protocol'];

/** Every mark of a listing's entry, as it came and each once. */
export function marksOf(entry: JsonObject): string[] {
  return [
    ...new Set(
      [...protocolFields, ...endpointFields].flatMap((field) => textsIn(at(entry, field), nameKeys)),
    ),
  ];
}

/**
 * Returns the protocols that an entry is marked for. A field that names protocols takes precedence over one that names
 * endpoints. Listed versions mark the protocol that has them (specification 2.7), and a model of the specification
 * belongs to its protocol if nothing else is said.
 */
export function protocolsOf(id: string, entry: JsonObject, hasVersions: boolean): string[] {
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
 * The non-empty texts of a value that is a text, a number, an object with one under one of `keys` (the first
 * that has one counts), or an array of these. Looks no deeper, so that no nesting can exhaust the stack.
 */
export function textsIn(value: Json | undefined, keys: string[]): string[] {
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
