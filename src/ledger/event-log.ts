import { crc32 } from 'node:zlib';
import { isObject } from '../json.ts';
import type { JobEvent, RecordedEvent } from '../job.ts';

/** The version of the record; a line of a later version is not read, and its job is then `unknown`. */
const version = 1;

/**
 * An event as one line of JSON with its time and a checksum, newline included; `undefined` as a line that cannot be
 * read. An event that has a time keeps it.
 */
export function encodeEvent(event: JobEvent | RecordedEvent | undefined, now: number): string {
  if (event === undefined) return '?\n';
  return `${checkedLine({ v: version, at: new Date(now).toISOString(), ...event })}\n`;
}

/** Closes off a line that was torn: no line of JSON holds this character. */
export const tornEnd = '\u0018\n';

/**
 * Reads a log; a line that cannot be read is `undefined`. A line that was torn, closed off since or not, is
 * left out: its process got no confirmation, and did not act on it. A text without a single
 * whole line has lost its beginning.
 */
export function decodeEvents(text: string): (RecordedEvent | undefined)[] {
  const lines = text.split('\n');
  lines.pop();
  const whole = lines.filter((line) => !line.endsWith(tornEnd[0] ?? '')).map(decodeLine);
  return whole.length > 0 ? whole : [undefined];
}

function decodeLine(line: string): RecordedEvent | undefined {
  const text = textOfLine(line);
  const event = text === undefined ? undefined : parsed(text);
  if (!isObject(event) || event['v'] !== version) return undefined;
  return event as unknown as RecordedEvent;
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

const tailStart = ',"crc":"';
const tailLength = `${tailStart}00000000"}`.length;

/** An object as one line of JSON that ends with a checksum of the text before it; no newline. */
export function checkedLine(object: object): string {
  const head = JSON.stringify(object).slice(0, -1);
  return head + tailOf(head);
}

/** The JSON of a line without its checksum, or undefined if the two do not agree. */
export function textOfLine(line: string): string | undefined {
  const head = line.slice(0, -tailLength);
  return line.slice(-tailLength) === tailOf(head) ? `${head}}` : undefined;
}

function tailOf(head: string): string {
  return `${tailStart}${crc32(head).toString(16).padStart(8, '0')}"}`;
}
