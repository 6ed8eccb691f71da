import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { extname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { systemCode } from '../errors.ts';
import type { JobFile } from '../job.ts';
import type { IncomingMessage, ServerResponse } from '../sandbox/loopback-server.ts';

const types: Record<string, string> = {
  '.mp4': 'video/mp4',
  '.m4v': 'video/mp4',
  '.mov': 'video/quicktime',
  '.webm': 'video/webm',
  '.mp3': 'audio/mpeg',
  '.wav': 'audio/wav',
  '.ogg': 'audio/ogg',
  '.opus': 'audio/ogg',
  '.m4a': 'audio/mp4',
};

/** A part of a file: from its first to its last byte. */
export interface ByteRange {
  first: number;
  last: number;
}

/**
 * The one range that a `Range` header asks for; undefined where the whole file is to be sent, as for what is no range or
 * several; `none` where the file has none of it (HTTP 416).
 */
export function rangeOf(header: string | undefined, size: number): ByteRange | 'none' | undefined {
  const [, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  if (from === '' && to === '') return undefined;
  const first = from === '' ? Math.max(0, size - Number(to)) : Number(from);
  const last = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (from !== '' && to !== '' && Number(from) > Number(to)) return undefined;
  return first > last ? 'none' : { first, last };
}

/** Sends a file, or the part of it that is asked for; what is no plain file is HTTP 404. */
export async function sendFile(
  request: IncomingMessage,
  response: ServerResponse,
  { path }: Pick<JobFile, 'path'>,
): Promise<void> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  try {
    const stat = await file?.stat();
    if (file === undefined || stat?.isFile() !== true) {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('The file is gone.\n');
      return;
    }
    const range = rangeOf(request.headers.range, stat.size);
    if (range === 'none') {
      response.writeHead(416, { 'content-range': `bytes */${stat.size}` }).end();
      return;
    }
    const { first, last } = range ?? { first: 0, last: stat.size - 1 };
    response.writeHead(range === undefined ? 200 : 206, {
      'content-type': types[extname(path).toLowerCase()] ?? 'application/octet-stream',
      'content-length': last - first + 1,
      'accept-ranges': 'bytes',
      'cache-control': 'no-cache',
      'content-security-policy': "default-src 'none'; sandbox",
      ...(range !== undefined && { 'content-range': `bytes ${first}-${last}/${stat.size}` }),
    });
    if (request.method === 'HEAD' || stat.size === 0) response.end();
    else await pipeline(file.createReadStream({ start: first, end: last, autoClose: false }), response);
  } catch (error) {
    // A player that has seen enough goes away.
    if (systemCode(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  } finally {
    await file?.close();
  }
}
