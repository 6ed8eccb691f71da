import { messageOf, usageError } from '../errors.ts';
import { isObject, parseJson, type Json, type JsonObject } from '../json.ts';
import type { Context } from './context.ts';
import { readInputText } from './input-file.ts';
import { readStdin } from './stdin.ts';

/**
 * The text that a flag such as `--body` stands for: itself, the file behind an `@`, or standard input for `-`
 * and `@-`. @throws MgwError('usage') naming the flag.
 */
export async function optionText(context: Context, source: string, flag: string): Promise<string> {
  if (source === '-' || source === '@-') return readStdin(context.io);
  return source.startsWith('@') ? readInputText(source.slice(1), flag) : source;
}

/** Text as JSON. @throws MgwError('usage') naming the flag. */
export function optionJson(text: string, flag: string): Json {
  try {
    return parseJson(text);
  } catch (error) {
    throw usageError(`${flag} is not JSON: ${messageOf(error)}`);
  }
}

/** Text as a JSON object. @throws MgwError('usage') naming the flag. */
export function optionObject(text: string, flag: string): JsonObject {
  const json = optionJson(text, flag);
  if (!isObject(json)) throw usageError(`${flag}: the JSON must be an object.`);
  return json;
}
