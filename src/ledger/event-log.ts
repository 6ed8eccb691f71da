import { crc32 } from 'node:zlib';
import { isObject } from '../json.ts';
import type { JobEvent, RecordedEvent } from '../job.ts';

/** The version of the record; a line of a later version is not read, and its job is then `unknown`. */
const version = 1;

const checksumTail = /,"crc":"([0-9a-f]{8})"\}$/;

/**
 * An event as one line of JSON with its time and a checksum, newline included; `undefined` as a line that cannot be
 * read. An event that bears a time keeps it.
 */
export function encodeEvent(event: JobEvent | RecordedEvent | undefined, now: number): string {
  if (event === undefined) return '?\n';
  const head = JSON.stringify({ v: version, at: new Date(now).toISOString(), ...event }).slice(0, -1);
  return `${head},"crc":"${checksum(head)}"}\n`;
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(8, '0');
}

/** Closes off a line that was torn: no line of JSON holds this character. */
export const tornEnd = '\u0018\n';

/**
 * Reads a log; `undefined` stands for a line that cannot be read. A line that was torn, closed off since or not, is
 * left out: whoever wrote it was never told that it stands, and acted on nothing of it. A text without a single
 * whole line has lost its beginning.
 */
export function decodeEvents(text: string): (RecordedEvent | undefined)[] {
  const lines = text.split('\n');
  lines.pop();
  const whole = lines.filter((line) => !line.endsWith(tornEnd[0] ?? '')).map(decodeLine);
  return whole.length > 0 ? whole : [undefined];
}

function decodeLine(line: string): RecordedEvent | undefined {
  const sum = checksumTail.exec(line);
  if (sum === null || checksum(line.slice(0, sum.index)) !== sum[1]) return undefined;
  const event = parsed(`${line.slice(0, sum.index)}}`);
  if (!isObject(event) || event['v'] !== version) return undefined;
  return { ...event, type: formerTypes.get(event['type']) ?? event['type'] } as unknown as RecordedEvent;
}

// As mgw 0.1 wrote them.
const formerTypes = new Map<unknown, string>([
  ['refused', 'unavailable'],
  ['lost', 'unknown'],
]);

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
