import { messageOf, usageError } from './errors.ts';

/** A value that `JSON.parse` can return. */
export type Json = string | number | boolean | null | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json | undefined;
}

/** The maximum nesting depth of parsed JSON. The limit makes recursion over a value safe. No gateway nests deeper. */
export const maxLevels = 200;

/**
 * Parses JSON. An integer beyond 2^53 becomes a string of its digits, because a task id must remain exact. A value
 * nested deeper than {@link maxLevels} becomes null, so that the rest of the response remains usable.
 * @throws SyntaxError if the text is not JSON.
 */
export function parseJson(text: string): Json {
  return parse(text).value;
}

function parse(text: string): { value: Json; isCut: boolean } {
  const clean = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  const value = JSON.parse(/\d{16}/.test(clean) ? quoteLongIntegers(clean) : clean) as Json;
  return { value, isCut: cutBelow(value, maxLevels) };
}

// Replaces values that are nested too deeply with null, in place. Returns whether any value was replaced.
function cutBelow(value: Json, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const members = value as JsonObject;
  let isCut = false;
  for (const name of Object.keys(members)) {
    const member = members[name];
    if (typeof member !== 'object' || member === null) continue;
    if (levels === 1) members[name] = null;
    isCut = levels === 1 || cutBelow(member, levels - 1) || isCut;
  }
  return isCut;
}

// Scans token by token, because a pattern that matches a whole string literal overflows the stack on a long literal.
function quoteLongIntegers(text: string): string {
  let inString = false;
  return text.replace(/\\[^]|"|-?\d[\d.eE+-]*/g, (token) => {
    if (token === '"') inString = !inString;
    return inString || !/^-?\d{16,}$/.test(token) || Number.isSafeInteger(Number(token))
      ? token
      : `"${token}"`;
  });
}

/**
 * Parses the JSON of a user's body, which must be sent unchanged (specification 1.2).
 * @throws SyntaxError if the text is not JSON; RangeError if an integer beyond 2^53 would change, a number is
 * infinite as a double, or the nesting is too deep.
 */
export function parseBodyJson(text: string): Json {
  const { value, isCut } = parse(text);
  if (isCut) throw new RangeError(`it is nested deeper than ${maxLevels} levels`);
  const inexact = inexactNumber(text);
  if (inexact !== undefined)
    throw new RangeError(
      `the number ${inexact.slice(0, 40)} would lose precision; quote it to send it as text`,
    );
  return value;
}

// Returns the first number that would change: an integer beyond 2^53, or a number beyond the range of a double.
function inexactNumber(text: string): string | undefined {
  let inString = false;
  for (const [token] of text.matchAll(/\\[^]|"|-?\d[\d.eE+-]*/g)) {
    if (token === '"') inString = !inString;
    if (inString || !/\d/.test(token)) continue;
    const isInteger = /^-?\d+$/.test(token);
    if (isInteger ? !Number.isSafeInteger(Number(token)) : !Number.isFinite(Number(token))) return token;
  }
  return undefined;
}

/**
 * Parses JSON like {@link parseBodyJson}, and refuses an object in which a name occurs twice: `JSON.parse` would silently
 * use the last value.
 * @throws SyntaxError if the text is not JSON; RangeError if a value would change or a name is repeated.
 */
export function parseUniqueJson(text: string): Json {
  const value = parseBodyJson(text);
  const name = duplicateName(text);
  if (name !== undefined) throw new RangeError(`duplicate field ${name.slice(0, 60) || '""'}`);
  return value;
}

// Returns the first name that an object in valid JSON repeats. The name before a colon is the last string read.
function duplicateName(text: string): string | undefined {
  const outerNames: Set<string>[] = [];
  let names = new Set<string>();
  let [start, end, inString] = [0, 0, false];
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (character === '\\') index += 1;
    else if (character === '"') {
      inString = !inString;
      if (inString) start = index;
      else end = index + 1;
    } else if (inString) continue;
    else if (character === '{') {
      outerNames.push(names);
      names = new Set();
    } else if (character === '}') names = outerNames.pop() ?? names;
    else if (character === ':') {
      const name = JSON.parse(text.slice(start, end)) as string;
      if (names.has(name)) return name;
      names.add(name);
    }
  }
  return undefined;
}

/** Parses JSON like {@link parseJson}, but returns undefined if the text is not JSON. */
export function tryParseJson(text: string): Json | undefined {
  // Avoids the cost of throwing an error for each short line of a stream that is not JSON.
  if (!/^\ufeff?\s*["{[\d\-tfn]/.test(text)) return undefined;
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/** Parses a JSON string whose content is itself JSON. Returns undefined for any other string. */
export function tryNestedJson(text: string): Json | undefined {
  return /^\s*["{[]/.test(text) ? tryParseJson(text) : undefined;
}

const maxCuts = 64;
// The maximum length of text to parse when searching for a valid cut, in UTF-16 code units. All cuts of a small
// response are tried, but only the last few of a large one.
const maxParsed = 1024 * 1024;

/**
 * Parses the complete part of a truncated JSON text. Drops an incomplete string, number or name at the end.
 * Returns undefined if no part is complete.
 */
export function parseCutJson(text: string): Json | undefined {
  const parsed = tryParseJson(text);
  if (parsed !== undefined) return parsed;
  const maxTried = Math.max(4, Math.floor(maxParsed / (text.length + 1)));
  for (const { end, open } of lastCuts(text).slice(0, maxTried)) {
    const value = tryParseJson(text.slice(0, end) + closersOf(open));
    if (value !== undefined) return value;
  }
  return undefined;
}

/** An open bracket, linked to the open brackets around it. */
interface OpenBracket {
  closer: string;
  level: number;
  outer?: OpenBracket;
}

function closersOf(open: OpenBracket | undefined): string {
  return open === undefined ? '' : open.closer + closersOf(open.outer);
}

// Returns the last positions at which the text can be cut, latest first: after a string or a bracket, and before a
// comma. Skips positions nested deeper than `maxLevels`.
function lastCuts(text: string): { end: number; open?: OpenBracket }[] {
  let cuts: { end: number; open?: OpenBracket }[] = [];
  let open: OpenBracket | undefined;
  let inString = false;
  for (const { 0: token, index } of text.matchAll(/\\[^]|["{}[\],]/g)) {
    if (token === '"') inString = !inString;
    if (inString) continue;
    if (token === '{' || token === '[')
      open = { closer: token === '{' ? '}' : ']', level: (open?.level ?? 0) + 1, outer: open };
    else if (token === '}' || token === ']') open = open?.outer;
    if ((open?.level ?? 0) > maxLevels) continue;
    cuts.push({ end: token === ',' ? index : index + 1, open });
    if (cuts.length >= 2 * maxCuts) cuts = cuts.slice(-maxCuts);
  }
  return cuts.slice(-maxCuts).reverse();
}

/** Whether a value is a JSON object, and neither null nor an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Returns the value at a path of own members and array indexes (`data.0.task_id`), or undefined if there is none. Never
 * reads inherited members such as `__proto__`.
 */
export function at(value: Json | undefined, path: string): Json | undefined {
  let current: Json | undefined = value;
  for (const step of path.split('.')) {
    if (typeof current !== 'object' || current === null || !Object.hasOwn(current, step)) return undefined;
    current = (current as JsonObject)[step];
  }
  return current;
}

/** Returns the non-empty string at a path; undefined if there is none. */
export function textAt(value: Json | undefined, path: string): string | undefined {
  const member = at(value, path);
  return typeof member === 'string' && member !== '' ? member : undefined;
}

/** Returns the id at a path as exact text: a non-empty string, or an integer's digits. */
export function idAt(value: Json | undefined, path: string): string | undefined {
  const member = at(value, path);
  return typeof member === 'number' && Number.isSafeInteger(member) ? String(member) : textAt(value, path);
}

/**
 * Serializes JSON with sorted members and no white space, so that equal values produce equal text. Recursion is
 * safe because of {@link maxLevels}.
 */
export function canonicalJson(value: Json | undefined): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const members = Object.keys(value)
    .filter((key) => value[key] !== undefined)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${members.join(',')}}`;
}

/**
 * Converts an object to the JSON to send.
 * @throws MgwError('usage') if the value is not an object, cannot be converted, or contains NaN, an infinite number or
 * an integer beyond 2^53.
 */
export function jsonObject(value: object, name: string): JsonObject {
  let json: Json | undefined;
  try {
    json = parseBodyJson(JSON.stringify(value, refuseInfinite) ?? 'null');
  } catch (error) {
    throw usageError(`${name}: ${messageOf(error)}.`);
  }
  if (!isObject(json)) throw usageError(`${name} must be an object.`);
  return json;
}

/** A replacer for JSON.stringify that refuses NaN and infinite numbers, which would become null. @throws RangeError */
export function refuseInfinite(_name: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError(`it contains ${value}`);
  return value;
}
