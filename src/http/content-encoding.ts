import type { Readable, Transform } from 'node:stream';
import type * as nodeZlib from 'node:zlib';

type Zlib = typeof nodeZlib;

const decoders = new Map<string, (zlib: Zlib) => Transform>([
  ['gzip', (zlib) => zlib.createGunzip()],
  ['x-gzip', (zlib) => zlib.createGunzip()],
  ['deflate', (zlib) => zlib.createInflate()],
  ['br', (zlib) => zlib.createBrotliDecompress()],
]);

/**
 * A body with its content coding undone. mgw asks for `identity`; some gateways compress all the same. An unknown
 * coding is passed on as it is.
 */
export function decoded(body: Readable, encoding: string | undefined): AsyncIterable<Uint8Array> {
  const decoder = decoders.get((encoding ?? '').trim().toLowerCase());
  return decoder === undefined ? body : undone(body, decoder);
}

// Loaded where a gateway compresses: it costs a part of every start.
async function* undone(body: Readable, decoder: (zlib: Zlib) => Transform): AsyncIterable<Uint8Array> {
  // It may break meanwhile; the pipeline tells of that too.
  body.on('error', () => undefined);
  const [{ pipeline }, zlib] = await Promise.all([import('node:stream'), import('node:zlib')]);
  // The reader sees the error on the last stream of the pipeline.
  yield* pipeline(body, decoder(zlib), () => undefined) as unknown as AsyncIterable<Uint8Array>;
}
