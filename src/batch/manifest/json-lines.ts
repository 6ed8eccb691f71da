import { messageOf } from '../../errors.ts';
import { isObject, parseBodyJson, type Json, type JsonObject } from '../../json.ts';
import { printableLine } from '../../printable.ts';
import type { ManifestRecord, Problem, WrittenField } from './record.ts';
import type { Source } from './source.ts';

/** Reads JSON Lines: an object on each line. Empty lines are skipped. */
export async function* readJsonLines(
  source: Source,
  report: (problem: Problem) => void,
): AsyncGenerator<ManifestRecord> {
  for await (const { bytes, line: first } of source.blocks()) {
    const lines = bytes.toString('utf8').split('\n');
    for (const [index, text] of lines.entries()) {
      const line = first + index;
      if (text.trim() === '' || source.badLines.has(line)) continue;
      const value = parsed(text, line, report);
      if (value === undefined) continue;
      if (isObject(value)) yield { line, fields: fieldsOf(value, line) };
      else report({ line, message: notAnObject(value) });
    }
  }
}

function fieldsOf(value: JsonObject, line: number): WrittenField[] {
  return Object.entries(value).map(([name, member]) => ({ name, value: member ?? null, line }));
}

function parsed(text: string, line: number, report: (problem: Problem) => void): Json | undefined {
  try {
    return parseBodyJson(text);
  } catch (error) {
    const why = printableLine(messageOf(error), 200);
    report({ line, message: error instanceof RangeError ? why : `it is not JSON: ${why}` });
    return undefined;
  }
}

function notAnObject(value: Json): string {
  return Array.isArray(value)
    ? 'it is a list: JSON Lines needs one object on each line, without brackets around them'
    : 'it is not an object: JSON Lines needs one on each line, such as {"prompt":"a boat"}';
}
