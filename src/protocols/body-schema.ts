import * as z from 'zod/mini';
import { listOf } from '../printable.ts';
import type { Json, JsonObject } from '../json.ts';
import { nearestName } from '../nearest.ts';
import { longName, violation } from './compose.ts';
import { type Flag, type Violation, isStoredName } from './protocol.ts';
import { shownValue } from './violations.ts';
import { reachOf } from '../http/reach.ts';

/**
 * The schema of a body. It lists every field of the specification, and its messages state the allowed values. Unlisted
 * fields pass, unless they look like typing errors.
 */
export type BodySchema = z.ZodMiniObject;

/** Returns a schema for text that is not blank. */
export function text(allowed = 'non-empty text'): z.ZodMiniString {
  return z.string({ error: allowed }).check(z.regex(/\S/, { error: allowed, abort: true }));
}

/** Returns a schema for a whole number within limits. */
export function wholeNumber(allowed: string, min?: number, max?: number): z.ZodMiniNumberFormat {
  const limits = [
    ...(min === undefined ? [] : [z.minimum(min, { error: allowed })]),
    ...(max === undefined ? [] : [z.maximum(max, { error: allowed })]),
  ];
  return z.int({ error: allowed }).check(...limits);
}

/** Returns a schema for a boolean. */
export function trueOrFalse(): z.ZodMiniBoolean {
  return z.boolean({ error: 'true or false' });
}

/** Returns a schema for one of a list of words, spelled exactly as listed. */
export function oneOfWords(words: readonly string[], allowed = words.join(', ')): z.ZodMiniType<string> {
  return z.enum(words as [string], { error: allowed });
}

/** Returns a schema for an asset's URL, which the provider must be able to reach (specification 2.3, 8). */
export function assetUrl(): z.ZodMiniString {
  const allowed = 'an http(s) URL that the public internet can reach';
  const judge = (url: string): string | undefined => {
    const problem = checkAssetUrl(url);
    return problem === undefined ? undefined : `${allowed} (this one ${problem})`;
  };
  return z.string({ error: allowed }).check(validated(judge));
}

/**
 * Returns a check that calls `judge` for each value. `judge` returns a phrase that describes the allowed values, or
 * undefined if the value is valid.
 */
export function validated<T>(judge: (value: T) => string | undefined): z.core.CheckFn<T> {
  return ({ value, issues }) => {
    const message = judge(value);
    if (message !== undefined) issues.push({ code: 'custom', message, input: value });
  };
}

/** Returns the schema, with each field described by the flag that sets it. */
export function withDescriptions<T extends BodySchema>(schema: T, flags: readonly Flag[]): T {
  for (const { field, description: flagText, fieldDescription: description = flagText } of flags) {
    const segments = field.split('.');
    const fieldSchema = shapeAt(schema, segments.slice(0, -1))?.[segments.at(-1) ?? ''];
    if (fieldSchema !== undefined && flags.filter((flag) => flag.field === field).length === 1)
      z.globalRegistry.add(fieldSchema, { ...z.globalRegistry.get(fieldSchema), description });
  }
  return schema;
}

// `advise` reuses the issues that `check` found, so that each of a batch's thousands of bodies is validated only once.
const shapes = new WeakMap<JsonObject, { schema: BodySchema; issues: readonly z.core.$ZodIssue[] }>();

/** Returns a violation for each field that breaks the schema or is probably misnamed. */
export function checkShape(schema: BodySchema, body: JsonObject, flags: readonly Flag[]): Violation[] {
  const issues = z.safeParse(schema, body).error?.issues ?? [];
  shapes.set(body, { schema, issues });
  const violations = issues.flatMap((issue): Violation[] => {
    if (issue.code !== 'unrecognized_keys')
      return [violation(flags, issue.path.join('.'), valueAt(body, issue.path), issue.message)];
    const names = issue.keys.slice(0, maxUnlisted).map((key) => ({
      path: [...issue.path, key],
      meant: similarName(schema, flags, issue.path, key),
    }));
    return names.flatMap(({ path, meant }) =>
      meant === undefined ? [] : [{ ...violation(flags, path.join('.'), valueAt(body, path), meant), meant }],
    );
  });
  const withNul = pathOfNul(body);
  if (withNul !== undefined)
    violations.unshift(violation(flags, withNul, 'text with a NUL character', 'text without NUL characters'));
  const names = new Set<string>();
  return violations.filter(({ field }) => !names.has(field) && names.add(field));
}

// Returns the path of a field whose text or name contains NUL. Other programs would truncate the text at the NUL. Not
// recursive, because a library caller's body may be nested too deeply for the stack.
function pathOfNul(body: JsonObject): string | undefined {
  const queue: { path: string; value: Json | undefined }[] = [{ path: '', value: body }];
  for (const { path, value } of queue) {
    if (typeof value === 'string' && value.includes('\0')) return path;
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, member] of Object.entries(value)) {
      const inner = path === '' ? name : `${path}.${name}`;
      if (name.includes('\0')) return inner;
      queue.push({ path: inner, value: member });
    }
  }
  return undefined;
}

/** The maximum number of unlisted fields that are checked for similar names. */
const maxUnlisted = 50;

/** Returns a note about the fields that the schema does not list, if there are any. */
export function adviseOfUnlisted(schema: BodySchema, body: JsonObject): string[] {
  const checked = shapes.get(body);
  const issues =
    checked?.schema === schema ? checked.issues : (z.safeParse(schema, body).error?.issues ?? []);
  const fields = issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => shownValue([...issue.path, key].join('.')))
      : [],
  );
  if (fields.length === 0) return [];
  return [`Fields that are not in the specification are sent unchanged: ${listOf(fields, maxUnlisted)}.`];
}

// Returns a similar field name in the same object, or the path of a similar field or flag elsewhere. Names inside lists
// are too general to be suggested.
function similarName(
  schema: BodySchema,
  flags: readonly Flag[],
  path: PropertyKey[],
  key: string,
): string | undefined {
  const sibling = nearestName(key, Object.keys(shapeAt(schema, path) ?? {}));
  if (sibling !== undefined) return [...path, sibling].join('.');
  const fields = fieldsOf(schema).map((field): [string, string] => [field.split('.').at(-1) ?? '', field]);
  const pathByName = new Map([
    ...flags.map((flag): [string, string] => [longName(flag), flag.field]),
    ...fields,
  ]);
  return pathByName.get(nearestName(key, [...pathByName.keys()]) ?? '');
}

function fieldsOf(schema: z.core.$ZodType, prefix = ''): string[] {
  return Object.entries(shapeAt(schema, []) ?? {}).flatMap(([name, field]) => [
    `${prefix}${name}`,
    ...fieldsOf(field, `${prefix}${name}.`),
  ]);
}

function shapeAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): z.core.$ZodShape | undefined {
  let current = unwrapOptional(schema);
  for (const step of path) {
    const inner = current instanceof z.ZodMiniArray ? current.def.element : shapeOf(current)?.[String(step)];
    if (inner === undefined) return undefined;
    current = unwrapOptional(inner);
  }
  return shapeOf(current);
}

function shapeOf(schema: z.core.$ZodType): z.core.$ZodShape | undefined {
  return schema instanceof z.ZodMiniObject ? schema.shape : undefined;
}

function unwrapOptional(schema: z.core.$ZodType): z.core.$ZodType {
  return schema instanceof z.ZodMiniOptional ? schema.def.innerType : schema;
}

function valueAt(body: JsonObject, path: readonly PropertyKey[]): Json | undefined {
  const ownMember = (value: Json | undefined, step: PropertyKey): Json | undefined =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, step)
      ? (value as JsonObject)[String(step)]
      : undefined;
  return path.reduce<Json | undefined>(ownMember, body);
}

/**
 * Returns the problem with an asset's URL, phrased to follow "it" (`points to a private network`); undefined if it
 * may be sent. Accepts http(s) URLs that the public internet can reach (specification 2.3, 8) and names of uploaded
 * files. Host names are judged without a DNS lookup.
 */
export function checkAssetUrl(url: string): string | undefined {
  if (isStoredName(url)) return undefined;
  if (!/^https?:\/\//i.test(url)) return 'is not an http:// or https:// URL';
  if (/[\s\p{Cc}\p{Cf}\\]/u.test(url)) return 'contains white space, a control character or a backslash';
  if (!URL.canParse(url)) return 'is not a valid URL';
  const { username, password, hostname } = new URL(url);
  if (username !== '' || password !== '') return 'contains a user name or password';
  return reachOf(hostname) !== 'public' ? 'points to a private network' : undefined;
}
