import { crc32 } from 'node:zlib';
import { isObject } from '../json.ts';
import type { JobEvent, RecordedEvent } from '../job.ts';

/** The version of the record; a line of a later version is not read, and its job is then `unknown`. */
const version = 1;

const checksumTail = /,"crc":"([0-9a-f]{8})"\}$/;

/** An event as one line of JSON with its time and a checksum, newline included. */
export function encodeEvent(event: JobEvent, now: number): string {
  const head = JSON.stringify({ v: version, at: new Date(now).toISOString(), ...event }).slice(0, -1);
  return `${head},"crc":"${checksum(head)}"}\n`;
}

function checksum(text: string): string {
  return crc32(text).toString(16).padStart(8, '0');
}

/** Reads a log. A last line without its newline was torn and costs only itself; other bad lines are counted. */
export function decodeEvents(text: string): { events: RecordedEvent[]; damaged: number } {
  const lines = text.split('\n');
  lines.pop();
  const events = lines.map(decodeLine);
  const whole = events.filter((event) => event !== undefined);
  // A file without a single whole line has lost its beginning.
  const lost = events.length === 0 ? 1 : 0;
  return { events: whole, damaged: events.length - whole.length + lost };
}

function decodeLine(line: string): RecordedEvent | undefined {
  const sum = checksumTail.exec(line);
  if (sum === null || checksum(line.slice(0, sum.index)) !== sum[1]) return undefined;
  const event: unknown = JSON.parse(line);
  return isObject(event) && event['v'] === version ? (event as unknown as RecordedEvent) : undefined;
}
