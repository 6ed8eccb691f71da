import type { Readable } from 'node:stream';

/** Returns all buffered data of a stream: Node 26 returns one chunk at a time. */
export function readAll(stream: Readable): Buffer {
  const chunks: Buffer[] = [];
  for (let chunk = stream.read() as Buffer | null; chunk !== null; chunk = stream.read() as Buffer | null)
    chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}
