import type { Readable } from 'node:stream';

/** Returns all of a stream's buffered data, although Node 26 returns only one chunk per read. */
export function readAll(stream: Readable): Buffer {
  const chunks: Buffer[] = [];
  for (let chunk = stream.read() as Buffer | null; chunk !== null; chunk = stream.read() as Buffer | null)
    chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}
