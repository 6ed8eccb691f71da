import { isObject, parseBodyJson, tryParseJson, type Json, type JsonObject } from '../../json.ts';
import { normalizedName } from '../../nearest.ts';
import { violation } from '../compose.ts';
import type { Violation } from '../protocol.ts';
import { flags } from './flags.ts';

const maxExampleLength = 300;

/**
 * Returns `ExtInfo` with `ReturnUsage` set, serialized at both levels (specification 2.3): JSON text of an object whose
 * `ExtVideoParameters` is also JSON text of an object. Returns undefined if the existing text is invalid or contains a
 * number that would change.
 */
export function withReturnUsage(extInfo: Json | undefined): string | undefined {
  const ext = extInfo === undefined ? {} : exactObjectIn(extInfo);
  const parametersText = ext?.['ExtVideoParameters'];
  const parameters = parametersText === undefined ? {} : exactObjectIn(parametersText);
  if (ext === undefined || parameters === undefined) return undefined;
  return JSON.stringify({ ...ext, ExtVideoParameters: JSON.stringify({ ...parameters, ReturnUsage: true }) });
}

/** Returns every violation of `ExtInfo`'s double serialization (specification 2.3). */
export function checkExtInfo(extInfo: Json | undefined): Violation[] {
  if (extInfo === undefined) return [];
  if (typeof extInfo !== 'string') return [wrongFormat('ExtInfo', extInfo, extInfo)];
  const ext = objectIn(extInfo);
  if (ext === undefined) return [wrongFormat('ExtInfo', extInfo, undefined)];
  return [
    ...misnamedMembers(ext, 'ExtInfo', 'ExtVideoParameters'),
    ...misplacedUsage(ext),
    ...checkParameters(ext, ext['ExtVideoParameters']),
  ];
}

function misplacedUsage(ext: JsonObject): Violation[] {
  return Object.keys(ext)
    .filter((key) => normalizedName(key) === 'returnusage')
    .map((key) =>
      violation(
        flags,
        `ExtInfo.${key}`,
        ext[key],
        expectedFormat({ ExtVideoParameters: { ReturnUsage: true } }),
      ),
    );
}

function checkParameters(ext: JsonObject, parametersText: Json | undefined): Violation[] {
  if (parametersText === undefined) return [];
  const parameters = typeof parametersText === 'string' ? objectIn(parametersText) : undefined;
  if (parameters === undefined) return [wrongFormat('ExtInfo.ExtVideoParameters', parametersText, ext)];
  const usage = parameters['ReturnUsage'];
  const hasWrongType = usage !== undefined && typeof usage !== 'boolean';
  const name = 'ExtInfo.ExtVideoParameters';
  return [
    ...misnamedMembers(parameters, name, 'ReturnUsage'),
    ...(hasWrongType ? [violation(flags, `${name}.ReturnUsage`, usage, 'the boolean true')] : []),
  ];
}

function misnamedMembers(object: JsonObject, path: string, name: string): Violation[] {
  return Object.keys(object)
    .filter((key) => key !== name && normalizedName(key) === normalizedName(name))
    .map((key) =>
      violation(flags, `${path}.${key}`, object[key], `the name ${name}, in exactly this spelling`),
    );
}

function wrongFormat(field: string, value: Json | undefined, intended: Json | undefined): Violation {
  return {
    ...violation(flags, field, value, expectedFormat(intended)),
    allowedAnyway: expectedFormat(undefined),
  };
}

// Returns the intended value as it must appear in the body, or an example if the value is too long or unclear.
function expectedFormat(intended: Json | undefined): string {
  const ext = isObject(intended) ? intended : { ExtVideoParameters: { ReturnUsage: true } };
  const parameters = ext['ExtVideoParameters'];
  const inner = isObject(parameters) ? { ExtVideoParameters: JSON.stringify(parameters) } : {};
  const example = JSON.stringify(JSON.stringify({ ...ext, ...inner }));
  if (example.length > maxExampleLength) return expectedFormat(undefined);
  return `an object as JSON text, in which ExtVideoParameters is JSON text too: "ExtInfo":${example} (--return-usage writes this)`;
}

function objectIn(text: string): JsonObject | undefined {
  const value = tryParseJson(text);
  return isObject(value) ? value : undefined;
}

// Parses JSON text that contains an object; undefined for any other text. Also returns undefined if an integer is
// beyond 2^53, because it would become a string or a different number.
function exactObjectIn(text: Json): JsonObject | undefined {
  try {
    const value = typeof text === 'string' ? parseBodyJson(text) : undefined;
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
