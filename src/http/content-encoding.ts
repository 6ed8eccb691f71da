import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';

const decoders = new Map<string, () => NodeJS.ReadWriteStream>([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);

/**
 * A body with its content coding undone. mgw asks for `identity`; some gateways compress all the same. An unknown
 * coding is passed on as it is.
 */
export function decoded(body: Readable, encoding: string | undefined): AsyncIterable<Uint8Array> {
  const decoder = decoders.get((encoding ?? '').trim().toLowerCase())?.();
  if (decoder === undefined) return body;
  // The reader sees the error on the last stream of the pipeline.
  return pipeline(body, decoder, () => undefined) as unknown as AsyncIterable<Uint8Array>;
}
