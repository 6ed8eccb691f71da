import type { Transform } from 'node:stream';
import type * as nodeZlib from 'node:zlib';
import { systemCode } from '../errors.ts';

const decoders = new Map<string, (zlib: typeof nodeZlib) => Transform>([
  ['gzip', (zlib) => zlib.createGunzip()],
  ['x-gzip', (zlib) => zlib.createGunzip()],
  ['deflate', (zlib) => zlib.createInflate()],
  ['br', (zlib) => zlib.createBrotliDecompress()],
]);

/** So little is decoded at a time that a bomb stays small until the reader has seen of it, bytes. */
const sliceBytes = 1024;
/** After so many slices without an outcome the coding is believed. */
const maxHeldBytes = 256;

/**
 * A body with its content coding undone. mgw asks for `identity`; some gateways compress anyway. An unknown
 * coding is passed on as it is. A body that is not in the coding it names is given as it came, and whatever could be
 * decoded of one that breaks; then the error is thrown.
 */
export function decoded(
  body: AsyncIterable<Uint8Array>,
  encoding: string | undefined,
): AsyncIterable<Uint8Array> {
  const create = decoders.get((encoding ?? '').trim().toLowerCase());
  return create === undefined ? body : undone(body, create);
}

async function* undone(
  body: AsyncIterable<Uint8Array>,
  create: (zlib: typeof nodeZlib) => Transform,
): AsyncGenerator<Uint8Array, void> {
  // Loaded only if a gateway compresses: it slows the start down.
  const decoder = create(await import('node:zlib'));
  const out: Uint8Array[] = [];
  let failure: Error | undefined;
  decoder.on('data', (chunk: Uint8Array) => out.push(chunk)).on('error', (error) => (failure = error));
  let held: Uint8Array[] | undefined = [];
  try {
    for await (const slice of slices(body)) {
      held?.push(slice);
      await step(decoder, slice);
      if (out.length > 0 || (held?.length ?? 0) > maxHeldBytes) held = undefined;
      yield* out.splice(0);
      if (failure === undefined) continue;
      // An end that comes too early is no sign of another coding.
      if (systemCode(failure) !== 'Z_BUF_ERROR') yield* held ?? [];
      throw failure;
    }
  } finally {
    decoder.destroy();
  }
}

/** A body in small pieces; an empty one is its end. */
async function* slices(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  for await (const chunk of body)
    for (let at = 0; at < chunk.length; at += sliceBytes) yield chunk.subarray(at, at + sliceBytes);
  yield new Uint8Array();
}

// A decoder reports a failure only to its error listeners.
function step(decoder: Transform, slice: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      decoder.off('error', done).off('end', done);
      resolve();
    };
    decoder.once('error', done).once('end', done);
    if (slice.length > 0) decoder.write(slice, done);
    else decoder.end();
  });
}
