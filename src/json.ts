/** What `JSON.parse` can give. */
export type Json = string | number | boolean | null | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json | undefined;
}

// A string literal or a run of digits too long for a double; only the second kind is rewritten.
const stringOrLongInteger = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d{16,}(?![\d.eE])/g;

/**
 * Parses JSON; an integer beyond 2^53 becomes a string of its exact digits, since a task id is exact text.
 * @throws SyntaxError where the text is not JSON.
 */
export function parseJson(text: string): Json {
  const clean = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  if (!/\d{16}/.test(clean)) return JSON.parse(clean) as Json;
  return JSON.parse(clean.replace(stringOrLongInteger, quoteUnsafe)) as Json;
}

function quoteUnsafe(token: string): string {
  return token.startsWith('"') || Number.isSafeInteger(Number(token)) ? token : `"${token}"`;
}

/** Parses JSON like {@link parseJson}; undefined where the text is not JSON. */
export function tryParseJson(text: string): Json | undefined {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

/**
 * Reads what is whole at the head of a JSON text that was cut: complete members are kept, a half-written
 * string, number or name is dropped. Undefined where nothing complete is left.
 */
export function parseCutJson(text: string): Json | undefined {
  const whole = tryParseJson(text);
  if (whole !== undefined) return whole;
  const cuts = safeCuts(text);
  for (const { end, closers } of cuts.reverse().slice(0, 64)) {
    const value = tryParseJson(text.slice(0, end) + closers);
    if (value !== undefined) return value;
  }
  return undefined;
}

// The places right behind a complete string or bracket, with what would close the text there.
function safeCuts(text: string): { end: number; closers: string }[] {
  const cuts: { end: number; closers: string }[] = [];
  let open = '';
  for (const token of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],]|"/g)) {
    if (token[0] === '"') break;
    if (token[0] === '{') open = `}${open}`;
    else if (token[0] === '[') open = `]${open}`;
    else if (token[0] === '}' || token[0] === ']') open = open.slice(1);
    const end = token[0] === ',' ? token.index : token.index + token[0].length;
    cuts.push({ end, closers: open });
  }
  return cuts;
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

/** JSON with sorted members and no white space: equal values give equal text. */
export function canonicalJson(value: Json | undefined): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const members = Object.keys(value)
    .filter((key) => value[key] !== undefined)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${members.join(',')}}`;
}
