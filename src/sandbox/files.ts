import { createHash } from 'node:crypto';
import type { Call, Reply } from './exchange.ts';
import { note } from './journal.ts';
import { parseRange } from './listener.ts';
import { renderVideo } from './media/video.ts';
import type { Task } from './tasks.ts';

/**
 * Serves one of a task's videos, with a strong ETag and `Last-Modified`, and records the sent bytes in the journal.
 * Responds to one byte range with 206, and to a range beyond the end with 416. Sends the whole video with 200 if there
 * are several ranges or `If-Range` does not match. `madeAt` is the time at which the video was created, in milliseconds
 * since 1970.
 */
export function serveVideo(call: Call, task: Task, madeAt: number, sample = 0): Reply {
  const { stateDir, now, takeFault } = call.gateway;
  const bytes = videoOf(task, sample);
  const total = bytes.length;
  const respond = (status: number, headers: Record<string, string>, start = 0, end = total): Reply => ({
    status,
    headers,
    body: bytes.subarray(start, end),
    onEnd: (sent) =>
      note(stateDir, { kind: 'fetched', at: now(), task: task.id, sample, start, end: start + sent, total }),
  });
  if (takeFault('download-no-range')) return respond(200, { 'Content-Type': 'video/mp4' });
  const headers = headersOf(bytes, madeAt);
  const span = isRangeApplicable(call, headers) ? parseRange(call.headers.range ?? '', total) : 'whole';
  if (span === 'whole') return respond(200, headers);
  if (span === 'beyond') {
    return {
      status: 416,
      headers: { 'Content-Range': `bytes */${total}`, 'Accept-Ranges': 'bytes' },
      body: '',
    };
  }
  const { start, end } = span;
  return respond(206, { ...headers, 'Content-Range': `bytes ${start}-${end - 1}/${total}` }, start, end);
}

/** Returns the offset of a response's body in the whole file, and the file's length, both in bytes. */
export function spanOf(reply: Reply): { start: number; total: number } {
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(reply.headers['Content-Range'] ?? '');
  if (match) return { start: Number(match[1]), total: Number(match[2]) };
  return { start: 0, total: Buffer.byteLength(reply.body as Uint8Array) };
}

function headersOf(bytes: Uint8Array, madeAt: number): Record<string, string> {
  return {
    'Content-Type': 'video/mp4',
    'Accept-Ranges': 'bytes',
    ETag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 32)}"`,
    'Last-Modified': new Date(madeAt).toUTCString(),
    'Cache-Control': 'private, no-transform',
  };
}

function isRangeApplicable(
  { method, headers }: Call,
  { ETag, 'Last-Modified': modified }: Record<string, string>,
): boolean {
  const condition = headers['if-range'];
  return method === 'GET' && (condition === undefined || condition === ETag || condition === modified);
}

/** The number of videos to cache in memory. Without a cache, a video would be rendered for each range of a download. */
const maxCachedVideos = 4;
const videoCache = new Map<string, Uint8Array>();

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
  const bytes = videoCache.get(name) ?? renderVideo(options);
  // The videos are in order of use, the least recent first.
  videoCache.delete(name);
  videoCache.set(name, bytes);
  for (const oldest of [...videoCache.keys()].slice(0, -maxCachedVideos)) videoCache.delete(oldest);
  return bytes;
}
