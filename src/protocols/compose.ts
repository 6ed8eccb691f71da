import { messageOf, MgwError, usageError } from '../errors.ts';
import { parseBodyJson, type Json, type JsonObject, isObject } from '../json.ts';
import type { Flag, Protocol, Violation } from './protocol.ts';
import { shownValue, valueInFile, violationMessage } from './violations.ts';

/** A flag's value, as given on the command line. For `file` flags, this is the file's bytes. */
export type FlagValue = string | string[] | boolean | Uint8Array;

/** The sources of a body, in ascending precedence: defaults, body, flags, set. */
export interface ComposeInput {
  /** The body given by `--body`, with the protocol's own field names. Not modified. */
  body?: JsonObject;
  /** The config's defaults, by long flag name without dashes. */
  defaults?: Record<string, unknown>;
  /** The given flags, by long name without dashes: `last-frame`. */
  flags: Record<string, FlagValue>;
  /** The values of `--set`: `path=value`, with the protocol's own field names. */
  set?: string[];
  /**
   * The names of the flags whose text was read from a file, and `body` if the body was. Errors do not quote this text.
   */
  fromFiles?: readonly string[];
}

// Long names of flags, cached because each row of a batch needs them many times.
const longNames = new WeakMap<Flag, string>();

/** Describes how a field's value breaks its rule. Includes the flag if only one flag sets the field. */
export function violation(
  flags: readonly Flag[],
  field: string,
  value: Json | undefined,
  allowed: string,
): Violation {
  const setters = flags.filter((flag) => flag.field === field || field.startsWith(`${flag.field}.`));
  const [setter] = setters;
  const flag = setter === undefined || setters.length > 1 ? undefined : `--${longName(setter)}`;
  return { field, value: shownValue(value), allowed, flag };
}

/** Returns a flag's long name, without dashes: `last-frame`. */
export function longName(flag: Flag): string {
  const cached = longNames.get(flag);
  if (cached !== undefined) return cached;
  const name = /--([a-z][a-z0-9-]*)/.exec(flag.flags)?.[1];
  if (name === undefined) throw new MgwError('internal', `The flag "${flag.flags}" has no long name.`);
  longNames.set(flag, name);
  return name;
}

/**
 * Composes the body of a submission (design 1): `--set` takes precedence over flags, flags over `--body`, and
 * configured defaults fill only missing fields. The lists of flags that share a field (two kinds of reference) are
 * joined in table order. Does not resolve aliases or check anything; `normalize` and `check` do that afterwards.
 * @throws MgwError('usage') naming the flag, or `--set` and its path.
 */
export function compose(protocol: Protocol, input: ComposeInput): JsonObject {
  const body = input.body === undefined ? {} : structuredClone(input.body);
  applyFlags(body, protocol, input);
  applySets(body, input.set ?? []);
  applyDefaults(body, protocol, input.defaults ?? {});
  return body;
}

/** Returns the path of the local file that a flag's value refers to; undefined if it refers to none. */
export function fileNamedBy({ kind, atFile }: Flag, value: FlagValue): string | undefined {
  if (typeof value !== 'string') return undefined;
  if (kind === 'file') return value.startsWith('@') ? undefined : value;
  return atFile === true && value.startsWith('@') ? value.slice(1) : undefined;
}

const tables = new WeakMap<Protocol['flags'], Map<string, Flag>>();

function tableOf({ flags }: Protocol): Map<string, Flag> {
  const cached = tables.get(flags);
  if (cached !== undefined) return cached;
  const table = new Map(flags.map((flag) => [longName(flag), flag]));
  tables.set(flags, table);
  return table;
}

function applyFlags(
  body: JsonObject,
  protocol: Protocol,
  { flags: values, fromFiles }: Pick<ComposeInput, 'flags' | 'fromFiles'>,
): void {
  const table = tableOf(protocol);
  const unknown = Object.keys(values).find((name) => !table.has(name));
  if (unknown !== undefined)
    throw usageError(`--${unknown} is not a flag of Protocol ${protocol.name.toUpperCase()}.`);
  const fieldValues = new Map<string, Json>();
  for (const [name, flag] of table) {
    if (!Object.hasOwn(values, name)) continue;
    const value = flagValue(flag, `--${name}`, values[name], fromFiles?.includes(name));
    const list = joinLists(fieldValues.get(flag.field), value);
    fieldValues.set(flag.field, list);
    write(body, flag.field, list, `--${name}`);
  }
}

function joinLists(existing: Json | undefined, value: Json): Json {
  return Array.isArray(existing) && Array.isArray(value) ? [...existing, ...value] : value;
}

function flagValue(flag: Flag, name: string, rawValue: unknown, isFromFile = false): Json {
  if (flag.kind === 'file') {
    if (typeof rawValue === 'string' && flag.fromFrame !== undefined) return flag.fromFrame(rawValue);
    if (!(rawValue instanceof Uint8Array) || flag.fromFile === undefined)
      throw new MgwError('internal', `${name} is empty.`);
    return parseOrRefuse(flag, name, 'the file', () => flag.fromFile?.(rawValue) ?? null);
  }
  if (flag.kind === 'list') return [rawValue].flat().map((entry) => singleValue(flag, name, entry));
  return singleValue(flag, name, rawValue, isFromFile);
}

function singleValue(flag: Flag, name: string, rawValue: unknown, isFromFile = false): Json {
  if (Array.isArray(rawValue))
    throw usageError(`${name} was given more than once, but accepts only one value.`);
  const hasRightType = flag.kind === 'switch' ? typeof rawValue === 'boolean' : typeof rawValue === 'string';
  if (!hasRightType)
    throw refusedError(flag, name, shownValue(rawValue), flag.kind === 'switch' ? 'true or false' : 'text');
  const value = rawValue as string | boolean;
  const valueText = isFromFile ? valueInFile : shownValue(value);
  return parseOrRefuse(flag, name, valueText, () => (flag.parse === undefined ? value : flag.parse(value)));
}

function parseOrRefuse(flag: Flag, name: string, shown: string, parse: () => Json): Json {
  try {
    return parse();
  } catch (error) {
    throw refusedError(flag, name, shown, messageOf(error));
  }
}

function refusedError(flag: Flag, name: string, value: string, allowed: string): MgwError {
  return usageError(
    violationMessage([{ field: flag.field, value, allowed, flag: name } satisfies Violation]),
  );
}

/**
 * Sets the values of `--set` in a body (`path=value` with the protocol's own field names; a list's entry is `.0` or
 * `[0]`). A value that is JSON is parsed.
 * @throws MgwError('usage') naming the path.
 */
export function applySets(body: JsonObject, sets: readonly string[]): void {
  const paths: string[] = [];
  for (const entry of sets) {
    const separator = entry.indexOf('=');
    if (separator < 1) throw usageError(`--set ${shownValue(entry)}: write it as path=value.`);
    const [path, text] = [dottedPath(entry.slice(0, separator)), entry.slice(separator + 1)];
    const clash = paths.find(
      (other) => `${other}.`.startsWith(`${path}.`) || `${path}.`.startsWith(`${other}.`),
    );
    if (clash !== undefined)
      throw usageError(`--set ${shownValue(path)} conflicts with --set ${shownValue(clash)}.`);
    paths.push(path);
    const label = `--set ${shownValue(path)}`;
    write(body, path, setValue(text, label), label);
  }
}

function setValue(text: string, label: string): Json {
  try {
    return parseBodyJson(text);
  } catch (error) {
    if (error instanceof RangeError) throw usageError(`${label}: ${error.message}.`);
    return text;
  }
}

function write(body: JsonObject, path: string, value: Json, label: string): void {
  try {
    setField(body, fieldSegments(path), value);
  } catch (error) {
    throw usageError(`${label}: ${messageOf(error)}.`);
  }
}

// Sets configured defaults in a body. Skips a default if its field, or an equivalent field, is present.
function applyDefaults(body: JsonObject, protocol: Protocol, defaults: Record<string, unknown>): void {
  const table = tableOf(protocol);
  for (const [name, value] of Object.entries(defaults)) {
    const flag = table.get(name);
    if (flag === undefined || flag.kind === 'file')
      throw usageError(
        `The config has a default for ${shownValue(name)}, which is not a flag of Protocol ${protocol.name.toUpperCase()}.`,
      );
    const fields = [flag.field, ...(flag.aliases ?? [])];
    if (fields.some((field) => hasField(body, fieldSegments(field)))) continue;
    setField(
      body,
      fieldSegments(flag.field),
      flagValue(flag, `The default ${name}`, asFlagValue(value, flag)),
    );
  }
}

// Converts a number from the config to text, because flags expect text.
function asFlagValue(value: unknown, flag: Flag): unknown {
  if (flag.kind === 'list' && Array.isArray(value))
    return value.map((entry) => asFlagValue(entry, { ...flag, kind: 'text' }));
  return typeof value === 'number' ? String(value) : value;
}

// The maximum number of segments in a path. The depth is limited, because bodies are processed recursively.
const maxSegments = 100;
const forbidden = new Set(['__proto__', 'constructor', 'prototype']);

/** Normalizes a path: `FileInfos[0].Url` becomes `FileInfos.0.Url`. */
export function dottedPath(path: string): string {
  return path.replace(/\[(\d+)\](?=[.[]|$)/g, '.$1');
}

/**
 * Splits a field's path, such as `instances.0.prompt`, into its segments.
 * @throws Error if there are too many segments, or a segment is empty or would reach an inherited member.
 */
export function fieldSegments(path: string): string[] {
  const segments = path.split('.', maxSegments + 1);
  if (segments.length > maxSegments) throw new Error(`the path has more than ${maxSegments} segments`);
  if (segments.some((segment) => segment.trim() === '')) throw new Error('the path has an empty segment');
  const forbiddenSegment = segments.find((segment) => forbidden.has(segment));
  if (forbiddenSegment !== undefined) throw new Error(`${forbiddenSegment} is not allowed in a path`);
  return segments;
}

/** Whether a path leads to a value, or passes through a value that has no members. */
export function hasField(body: JsonObject, segments: readonly string[]): boolean {
  let current: Json | undefined = body;
  for (const segment of segments) {
    if (typeof current !== 'object' || current === null) return true;
    if (!Object.hasOwn(current, segment)) return false;
    current = (current as JsonObject)[segment];
  }
  return current !== undefined;
}

/**
 * Sets the value at a path, in place. Creates missing parents: a list if the next segment is a number, else an object.
 * @throws Error if a parent is neither a list nor an object, or an index is beyond the end of its list.
 */
function setField(body: JsonObject, segments: readonly string[], value: Json): void {
  let container: Json = body;
  for (const [depth, segment] of segments.entries()) {
    const parentPath = segments.slice(0, depth).join('.');
    if (Array.isArray(container)) checkIndex(container, segment, parentPath);
    else if (!isObject(container)) throw new Error(`${parentPath} is not an object or a list`);
    const nextSegment = segments[depth + 1];
    const members = container as JsonObject;
    if (nextSegment === undefined) members[segment] = value;
    else if (!Object.hasOwn(members, segment)) members[segment] = isIndex(nextSegment) ? [] : {};
    container = members[segment] as Json;
  }
}

function checkIndex(list: Json[], segment: string, parentPath: string): void {
  if (!isIndex(segment)) throw new Error(`${parentPath} is a list: the next segment must be a number`);
  if (Number(segment) <= list.length) return;
  const entries = list.length === 1 ? '1 entry' : `${list.length} entries`;
  throw new Error(`${parentPath} has ${entries}, so the next index is ${list.length}`);
}

function isIndex(segment: string): boolean {
  return /^(0|[1-9]\d{0,8})$/.test(segment);
}
