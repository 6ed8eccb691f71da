import { createHash } from 'node:crypto';
import type { Call, Reply } from './exchange.ts';
import { note } from './journal.ts';
import { parseRange } from './listener.ts';
import { renderVideo } from './media/video.ts';
import type { Task } from './tasks.ts';

/** A file to serve. `madeAt` is the time at which its content was created, in milliseconds since 1970. */
interface ServedFile {
  bytes: Uint8Array;
  type: string;
  madeAt: number;
  /**
   * Called at the end of the response with the byte range that was sent: from `start` up to, but not including, `end`.
   */
  fetched: (start: number, end: number) => void;
}

/** Serves one of a task's videos, and records the sent bytes in the journal. */
export function serveVideo(call: Call, task: Task, madeAt: number, sample = 0): Reply {
  const { stateDir, now } = call.gateway;
  const bytes = videoOf(task, sample);
  const fetched = (start: number, end: number): void =>
    note(stateDir, { kind: 'fetched', at: now(), task: task.id, sample, start, end, total: bytes.length });
  return serveFile(call, { bytes, type: 'video/mp4', madeAt, fetched });
}

/**
 * Serves a file with a strong ETag and `Last-Modified`. Responds to one byte range with 206, and to a range beyond the
 * end with 416. Sends the whole file with 200 if there are several ranges or `If-Range` does not match.
 */
function serveFile(call: Call, file: ServedFile): Reply {
  const total = file.bytes.length;
  if (call.gateway.take('download-no-range')) return whole(file, { 'Content-Type': file.type });
  const headers = headersOf(file);
  if (!rangeCounts(call, headers)) return whole(file, headers);
  const span = parseRange(call.headers.range ?? '', total);
  if (span === 'whole') return whole(file, headers);
  if (span === 'beyond') {
    return {
      status: 416,
      headers: { 'Content-Range': `bytes */${total}`, 'Accept-Ranges': 'bytes' },
      body: '',
    };
  }
  const range = { 'Content-Range': `bytes ${span.start}-${span.end - 1}/${total}` };
  return {
    status: 206,
    headers: { ...headers, ...range },
    body: file.bytes.subarray(span.start, span.end),
    ended: (bytes) => file.fetched(span.start, span.start + bytes),
  };
}

/** Returns the offset of a response's body in the whole file, and the file's length, both in bytes. */
export function spanOf(reply: Reply): { start: number; total: number } {
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(reply.headers['Content-Range'] ?? '');
  if (match) return { start: Number(match[1]), total: Number(match[2]) };
  return { start: 0, total: Buffer.byteLength(reply.body as Uint8Array) };
}

function whole(file: ServedFile, headers: Record<string, string>): Reply {
  return { status: 200, headers, body: file.bytes, ended: (bytes) => file.fetched(0, bytes) };
}

function headersOf({ bytes, type, madeAt }: ServedFile): Record<string, string> {
  return {
    'Content-Type': type,
    'Accept-Ranges': 'bytes',
    ETag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 32)}"`,
    'Last-Modified': new Date(madeAt).toUTCString(),
    'Cache-Control': 'private, no-transform',
  };
}

function rangeCounts(
  { method, headers }: Call,
  { ETag, 'Last-Modified': modified }: Record<string, string>,
): boolean {
  const condition = headers['if-range'];
  return method === 'GET' && (condition === undefined || condition === ETag || condition === modified);
}

/** The number of videos to cache in memory. Without a cache, a video would be rendered for each range of a download. */
const KEPT = 4;
const kept = new Map<string, Uint8Array>();

/** Returns the video for a task's sample, counted from 0. Renders the video on demand, always with the same bytes. */
export function videoOf({ prompt, seconds, width, height, audio }: Task, sample = 0): Uint8Array {
  const options = {
    prompt: sample === 0 ? prompt : `${prompt} #${sample + 1}`,
    seconds,
    width,
    height,
    audio,
  };
  const name = JSON.stringify(options);
  const bytes = kept.get(name) ?? renderVideo(options);
  keep(name, bytes);
  return bytes;
}

function keep(name: string, bytes: Uint8Array): void {
  kept.delete(name);
  kept.set(name, bytes);
  for (const oldest of [...kept.keys()].slice(0, -KEPT)) kept.delete(oldest);
}
