import { isObject, type Json, type JsonObject } from '../json.ts';
import type { Protocol } from './protocol.ts';

const storedForm = /^sha256:[\da-f]{64}(?:\.[a-z\d]{1,8})?(?:#(?:first|last))?$/;

/**
 * Whether a text names a file by its content: `sha256:`, the SHA-256, and its extension; `#first` or `#last` after it is a
 * frame of that video. It replaces the URL in fingerprints and in the ledger, because the signature of a URL changes, and
 * the bytes of a frame depend on the version of ffmpeg (design 17).
 */
export function isStoredName(text: string): boolean {
  return storedForm.test(text);
}

/** Whether an asset's value is the path of a local file: it is not a URL. A leading `@` is reserved for jobs. */
export function isLocalPath(value: string): boolean {
  return value.trim() !== '' && !/^(@|[a-z][a-z\d+.-]+:)/i.test(value) && !/\p{Cc}/u.test(value);
}

/** Whether an asset's value names an earlier job: `@KEY`, `@KEY:last`. */
export function isEarlierJob(value: string): boolean {
  return /^@./.test(value) && !/\p{Cc}/u.test(value);
}

/** Returns a copy of a body with each text at the places of the protocol's assets replaced by what `change` returns. */
export function withAssets(
  { assetFields = [] }: Protocol,
  body: JsonObject,
  change: (value: string) => string,
): JsonObject {
  return assetFields.reduce<Json>((copy, path) => changed(copy, path.split('.'), change), body) as JsonObject;
}

function changed(value: Json, [step, ...rest]: string[], change: (value: string) => string): Json {
  if (step === undefined) return typeof value === 'string' ? change(value) : value;
  if (step === '*') return Array.isArray(value) ? value.map((each) => changed(each, rest, change)) : value;
  const member = isObject(value) ? value[step] : undefined;
  return member === undefined ? value : { ...(value as JsonObject), [step]: changed(member, rest, change) };
}
