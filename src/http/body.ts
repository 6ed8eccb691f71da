import type { Transform } from 'node:stream';
import type * as nodeZlib from 'node:zlib';
import { systemCode } from '../errors.ts';

const decoders = new Map<string, (zlib: typeof nodeZlib) => Transform>([
  ['gzip', (zlib) => zlib.createGunzip()],
  ['x-gzip', (zlib) => zlib.createGunzip()],
  ['deflate', (zlib) => zlib.createInflate()],
  ['br', (zlib) => zlib.createBrotliDecompress()],
]);

/**
 * Whether a content encoding is a known compression. Other values, such as `none`, `utf-8` or `aws-chunked`, come from
 * wrongly labelled uploads of plain files.
 */
export function isCompression(encoding: string | undefined): boolean {
  const names = (encoding ?? '').toLowerCase().split(',');
  return names.some((each) => decoders.has(each.trim()) || /^\s*(x-)?(zstd|compress)\s*$/.test(each));
}

/** The number of bytes to decode at a time. It is small, so that the reader can stop a decompression bomb early. */
const sliceBytes = 1024;
/** If decoding has not failed after this many slices, the body is assumed to have its declared encoding. */
const maxUndecidedSlices = 256;

/**
 * Decodes the content encoding of a body. mgw requests `identity`, but some gateways compress anyway. A body whose
 * encoding is unknown, or differs from the declared one, is passed on unchanged. If decoding fails later, the decoded
 * part is passed on before the error is thrown.
 */
export function decodeBody(
  body: AsyncIterable<Uint8Array>,
  encoding: string | undefined,
): AsyncIterable<Uint8Array> {
  const create = decoders.get((encoding ?? '').trim().toLowerCase());
  return create === undefined ? body : decodeWith(body, create);
}

async function* decodeWith(
  body: AsyncIterable<Uint8Array>,
  create: (zlib: typeof nodeZlib) => Transform,
): AsyncGenerator<Uint8Array, void> {
  // zlib is loaded on demand, because it slows startup and most gateways do not compress.
  const decoder = create(await import('node:zlib'));
  const decoded: Uint8Array[] = [];
  let failure: Error | undefined;
  decoder.on('data', (chunk: Uint8Array) => decoded.push(chunk)).on('error', (error) => (failure = error));
  let undecided: Uint8Array[] | undefined = [];
  try {
    for await (const slice of slices(body)) {
      undecided?.push(slice);
      await decodeSlice(decoder, slice);
      if (decoded.length > 0 || (undecided?.length ?? 0) > maxUndecidedSlices) undecided = undefined;
      yield* decoded.splice(0);
      if (failure === undefined) continue;
      // A premature end does not mean that the body has a different encoding.
      if (systemCode(failure) !== 'Z_BUF_ERROR') yield* undecided ?? [];
      throw failure;
    }
  } finally {
    decoder.destroy();
  }
}

/** Splits a body into small slices. An empty slice marks the end. */
async function* slices(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void> {
  for await (const chunk of body)
    for (let at = 0; at < chunk.length; at += sliceBytes) yield chunk.subarray(at, at + sliceBytes);
  yield new Uint8Array();
}

// Resolves once a slice has been decoded. Never rejects, because a decoder reports a failure only to its error
// listeners.
function decodeSlice(decoder: Transform, slice: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const settle = (): void => {
      decoder.off('error', settle).off('end', settle);
      resolve();
    };
    decoder.once('error', settle).once('end', settle);
    if (slice.length > 0) decoder.write(slice, settle);
    else decoder.end();
  });
}

/**
 * Reads a body up to `maxBytes`. `complete` is false if the body is longer or was cut off. The bytes that arrived are
 * returned in any case, because they may contain a handle.
 */
export async function readBounded(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<{ bytes: Uint8Array; complete: boolean }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk.subarray(0, maxBytes - size));
      size += chunk.length;
      if (size > maxBytes) break;
    }
  } catch {
    return { bytes: Buffer.concat(chunks), complete: false };
  }
  return { bytes: Buffer.concat(chunks), complete: size <= maxBytes };
}
