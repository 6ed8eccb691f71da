/** What `JSON.parse` can give. */
export type Json = string | number | boolean | null | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json | undefined;
}

/** The depth to which JSON is read, so that recursion over a value is safe. No gateway nests deeper. */
export const maxLevels = 200;

/**
 * Parses JSON; an integer beyond 2^53 becomes a string of its exact digits, since a task id is exact text. What is
 * nested deeper than {@link maxLevels} becomes null: the rest of the response still counts.
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

// In place; true if something was cut.
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

// Token by token rather than by one pattern for a whole string literal: that one overflows on a long literal.
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
 * Parses the JSON of a body that a person gave, which must go out as it is (specification 1.2).
 * @throws SyntaxError if the text is not JSON; RangeError naming a number that would be sent as another one, or
 * that it is nested too deep.
 */
export function parseBodyJson(text: string): Json {
  const { value, isCut } = parse(text);
  if (isCut) throw new RangeError(`it is nested deeper than ${maxLevels} levels`);
  const lost = inexactNumber(text);
  if (lost !== undefined)
    throw new RangeError(
      `the number ${lost.slice(0, 40)} cannot be sent unchanged; in quotes it is sent as text`,
    );
  return value;
}

// An integer beyond 2^53, or any number beyond the range of a double.
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

/** Parses JSON like {@link parseJson}; undefined if the text is not JSON. */
export function tryParseJson(text: string): Json | undefined {
  // An error costs more than all of a short text; streams may be nothing but such lines.
  if (!/^\ufeff?\s*["{[\d\-tfn]/.test(text)) return undefined;
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

const maxCuts = 64;
// How much text is parsed in search of a cut, UTF-16 code units: all cuts of a small answer, the last few of a large one.
const maxParsed = 1024 * 1024;

/**
 * Reads what is whole at the head of a JSON text that was cut: complete members are kept, a half-written
 * string, number or name is dropped. Undefined if nothing complete is left.
 */
export function parseCutJson(text: string): Json | undefined {
  const whole = tryParseJson(text);
  if (whole !== undefined) return whole;
  const most = Math.max(4, Math.floor(maxParsed / (text.length + 1)));
  for (const { end, open } of lastCuts(text).slice(0, most)) {
    const value = tryParseJson(text.slice(0, end) + closersOf(open));
    if (value !== undefined) return value;
  }
  return undefined;
}

/** A bracket that is open, and those around it. */
interface Open {
  closer: string;
  level: number;
  around?: Open;
}

function closersOf(open: Open | undefined): string {
  return open === undefined ? '' : open.closer + closersOf(open.around);
}

// The last places right after a complete string or bracket, latest first; if it is nested too deep there is none.
function lastCuts(text: string): { end: number; open?: Open }[] {
  let cuts: { end: number; open?: Open }[] = [];
  let open: Open | undefined;
  let inString = false;
  for (const { 0: token, index } of text.matchAll(/\\[^]|["{}[\],]/g)) {
    if (token === '"') inString = !inString;
    if (inString) continue;
    if (token === '{' || token === '[')
      open = { closer: token === '{' ? '}' : ']', level: (open?.level ?? 0) + 1, around: open };
    else if (token === '}' || token === ']') open = open?.around;
    if ((open?.level ?? 0) > maxLevels) continue;
    cuts.push({ end: token === ',' ? index : index + 1, open });
    if (cuts.length >= 2 * maxCuts) cuts = cuts.slice(-maxCuts);
  }
  return cuts.slice(-maxCuts).reverse();
}

/** True for a JSON object: not null, not an array. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * The value at a path of own members and array indexes (`data.0.task_id`), or undefined. Inherited members
 * such as `__proto__` are never reached.
 */
export function at(value: Json | undefined, path: string): Json | undefined {
  let current: Json | undefined = value;
  for (const step of path.split('.')) {
    if (typeof current !== 'object' || current === null || !Object.hasOwn(current, step)) return undefined;
    current = (current as JsonObject)[step];
  }
  return current;
}

/** The non-empty string at a path, or undefined. */
export function textAt(value: Json | undefined, path: string): string | undefined {
  const found = at(value, path);
  return typeof found === 'string' && found !== '' ? found : undefined;
}

/** An id at a path as exact text: a non-empty string, or an integer's digits. */
export function idAt(value: Json | undefined, path: string): string | undefined {
  const found = at(value, path);
  return typeof found === 'number' && Number.isSafeInteger(found) ? String(found) : textAt(value, path);
}

/** JSON with sorted members and no white space: equal values give equal text. By recursion, see {@link maxLevels}. */
export function canonicalJson(value: Json | undefined): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const members = Object.keys(value)
    .filter((key) => value[key] !== undefined)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${members.join(',')}}`;
}
