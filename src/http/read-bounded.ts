/**
 * Reads a body up to `maxBytes`. `complete` is false if the bound cut it or the stream broke: what had come
 * by then is kept, since a handle may be in it.
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
