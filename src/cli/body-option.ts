import { messageOf, usageError } from '../errors.ts';
import { isObject, parseBodyJson, parseJson, type Json, type JsonObject } from '../json.ts';
import type { Context } from './context.ts';
import { readInputText } from './input-file.ts';
import { readStdin } from './stdin.ts';

/**
 * The text that a flag such as `--body` stands for: itself, the file after an `@`, or standard input for `-`
 * and `@-`. @throws MgwError('usage') naming the flag.
 */
export async function optionText(context: Context, source: string, flag: string): Promise<string> {
  if (source === '-' || source === '@-') return readStdin(context.io);
  return source.startsWith('@') ? readInputText(source.slice(1), flag) : source;
}

/** Text as JSON. @throws MgwError('usage') naming the flag. */
export function optionJson(text: string, flag: string): Json {
  return parsed(text, flag, parseJson);
}

/**
 * Text as a JSON object that is to be sent.
 * @throws MgwError('usage') naming the flag, also for a number that would be sent as another one.
 */
export function optionObject(text: string, flag: string): JsonObject {
  const json = parsed(text, flag, parseBodyJson);
  if (!isObject(json)) throw usageError(`${flag}: the JSON must be an object.`);
  return json;
}

// The name of a file without its @.
function fileHint(text: string, flag: string): string {
  const isName = /^[^\s{}[\]"]{1,255}$/.test(text) && /[./\\]/.test(text);
  return isName ? `. To read the file, put an @ before its name: ${flag} @${text}` : '';
}

function parsed(text: string, flag: string, parse: (text: string) => Json): Json {
  try {
    return parse(text);
  } catch (error) {
    const what = error instanceof RangeError ? flag : `${flag} is not JSON`;
    throw usageError(`${what}: ${messageOf(error)}${fileHint(text, flag)}`);
  }
}
