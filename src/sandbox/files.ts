import { createHash } from 'node:crypto';
import type { Call, Reply } from './exchange.ts';
import { note } from './journal.ts';
import { parseRange } from './listener.ts';
import { renderVideo } from './media/video.ts';
import type { Task } from './tasks.ts';

/** A file that is served: its bytes, and when they came to be (milliseconds since 1970). */
interface ServedFile {
  bytes: Uint8Array;
  type: string;
  madeAt: number;
  /** Called once the answer is over, with the bytes of the file that were sent: from `start` to `end`, not included. */
  fetched: (start: number, end: number) => void;
}

/** Serves a video of a task, and notes in the journal which of its bytes were sent. */
export function serveVideo(call: Call, task: Task, madeAt: number, sample = 0): Reply {
  const { stateDir, now } = call.gateway;
  const bytes = videoOf(task, sample);
  const fetched = (start: number, end: number): void =>
    note(stateDir, { kind: 'fetched', at: now(), task: task.id, sample, start, end, total: bytes.length });
  return serveFile(call, { bytes, type: 'video/mp4', madeAt, fetched });
}

/**
 * Serves a file with a strong ETag and `Last-Modified`: one byte range with 206, several as the whole file, one
 * beyond the end with 416; `If-Range` that no longer fits gives the whole file with 200.
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

/** The offset of an answer's bytes in the whole file, and the length of that file, both in bytes. */
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

/** Videos kept in memory, so that the ranges of one download are cut from one rendering. */
const KEPT = 4;
const kept = new Map<string, Uint8Array>();

/** The video of a task's sample (counted from 0): always the same bytes, made when they are asked for. */
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
