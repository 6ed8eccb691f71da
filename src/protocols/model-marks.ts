import type { ProtocolName } from '../job.ts';
import { at, isObject, type Json, type JsonObject } from '../json.ts';

// The specification says that an entry marks its protocol, and not in which field or by which word (2.7).
const protocolFields = ['protocol', 'protocols', 'supported_protocols', 'video_protocol', 'video_protocols'];
const endpointFields = [
  'supported_endpoint_types',
  'endpoint_types',
  'supported_actions',
  'supportedGenerationMethods',
];

const nameKeys = ['name', 'id', 'type', 'protocol'];

// Compared with a mark's letters and digits in lower case.
const words: Record<ProtocolName, RegExp> = {
  a: /^(protocol)?a$|longrunning|^veo|geminivideo/,
  b: /^(protocol)?b$|cloudaction|aigc|^(tencent)?vod$/,
  c: /^(protocol)?c$|unified|openaivideo|videogenerations?$|^(v1)?videos$/,
};

const protocolCModels = new Set(['vendor-h3', 'vendor-h3-base', 'vendor-h3-base-fast', 'vendor-h3-mini']);

/** Every mark of a listing's entry, as it came and each once. */
export function marksOf(entry: JsonObject): string[] {
  return [
    ...new Set(
      [...protocolFields, ...endpointFields].flatMap((field) => textsIn(at(entry, field), nameKeys)),
    ),
  ];
}

/**
 * The protocols that an entry stands for. A field that names protocols decides over one that names endpoints;
 * versions are Protocol B's (specification 2.7), and the models of specification 2.5 are Protocol C's where
 * nothing says otherwise.
 */
export function protocolsOf(id: string, entry: JsonObject, hasVersions: boolean): ProtocolName[] {
  const named = protocolsNamed(entry, protocolFields);
  const found = named.size > 0 ? named : protocolsNamed(entry, endpointFields);
  if (hasVersions) found.add('b');
  if (found.size === 0 && protocolCModels.has(id)) found.add('c');
  return [...found].sort();
}

function protocolsNamed(entry: JsonObject, fields: string[]): Set<ProtocolName> {
  return new Set(fields.flatMap((field) => textsIn(at(entry, field), nameKeys)).flatMap(protocolsIn));
}

function protocolsIn(mark: string): ProtocolName[] {
  const parts = mark.split(/[,;|]/).map((part) => part.toLowerCase().replace(/[^a-z0-9]/g, ''));
  return (['a', 'b', 'c'] as const).filter((name) => parts.some((part) => words[name].test(part)));
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
