import { crc32 } from 'node:zlib';
import { isObject, type JsonObject } from '../json.ts';
import {
  lostFingerprint,
  lostProtocol,
  type Job,
  type JobEvent,
  type JobRecord,
  type RecordedEvent,
} from '../job.ts';
import { foldFrom } from './fold.ts';
import { timeOf } from './names.ts';

/** The record format's version. A line of a later version cannot be read, so its job is `unknown`. */
const version = 1;

/**
 * Encodes an event as one line of JSON with its time and a checksum, including the newline. `undefined` becomes a line
 * that cannot be read. If an event has a time, that time is used instead of `now`.
 */
export function encodeEvent(event: JobEvent | RecordedEvent | undefined, now: number): string {
  if (event === undefined) return '?\n';
  return `${checkedLine({ v: version, at: new Date(now).toISOString(), ...event })}\n`;
}

/** The text that terminates a torn line. Its first character never occurs in JSON. */
export const tornEnd = '\u0018\n';

/**
 * Decodes a log. A line that cannot be read becomes `undefined`. Skips a torn line, even if a later process terminated
 * it: its writer got no confirmation and did not act on it. If there is no complete line, returns one `undefined`,
 * because the first line was lost.
 */
export function decodeEvents(text: string): (RecordedEvent | undefined)[] {
  const lines = text.split('\n');
  lines.pop();
  const completeLines = lines
    .filter((line) => !line.endsWith(tornEnd[0] ?? ''))
    .map((line) => objectOfLine(line, version) as unknown as RecordedEvent | undefined);
  return completeLines.length > 0 ? completeLines : [undefined];
}

function tryParse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

const tailStart = ',"crc":"';
const tailLength = `${tailStart}00000000"}`.length;

/** Encodes an object as one line of JSON that ends with a checksum of the text before it, without a newline. */
export function checkedLine(object: object): string {
  const head = JSON.stringify(object).slice(0, -1);
  return head + tailOf(head);
}

/** Returns the JSON of a line without its checksum, or undefined if the checksum is wrong. */
export function textOfLine(line: string): string | undefined {
  const head = line.slice(0, -tailLength);
  return line.slice(-tailLength) === tailOf(head) ? `${head}}` : undefined;
}

/** Returns the object of a line with a checksum; undefined if the checksum or the version `v` is wrong. */
export function objectOfLine(line: string, version: number): JsonObject | undefined {
  const value = tryParse(textOfLine(line) ?? '');
  return isObject(value) && value['v'] === version ? value : undefined;
}

function tailOf(head: string): string {
  return `${tailStart}${crc32(head).toString(16).padStart(8, '0')}"}`;
}

/**
 * Computes a job from a record that lost its first lines. The job has enough data to be identified, to block a second
 * submission and, if its handle is readable, to be fetched. `text` is the whole file.
 */
export function damagedJob(
  id: string,
  text: string,
  lines: readonly (RecordedEvent | undefined)[],
  lifeOf?: JobRecord['lifeOf'],
): Job {
  const protocol = /"protocol":"([a-z][a-z0-9-]{0,31})"/.exec(text)?.[1] ?? lostProtocol;
  const prepared = {
    type: 'prepared' as const,
    at: new Date(timeOf(id)).toISOString(),
    protocol,
    base_url: '',
    fingerprint: lostFingerprint,
    account: '',
  };
  const job = foldFrom(id, prepared, [undefined, ...lines], lifeOf);
  job.error ??= { code: 'local_io', message: 'The record of this job is damaged.' };
  return job;
}
