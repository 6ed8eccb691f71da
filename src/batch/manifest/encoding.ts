import { isAscii } from 'node:buffer';

/** The encodings of a manifest. */
export type Encoding = 'utf-8' | 'utf-16le' | 'utf-16be' | 'windows-1252';

/**
 * Detects the encoding of a text: by its byte order mark, else UTF-8, or Windows-1252 if more of it is invalid than
 * valid UTF-8 beyond ASCII. Bytes that Windows-1252 does not define count as UTF-8, whose invalid lines are reported.
 */
export async function detectEncoding(chunks: AsyncIterable<Buffer>): Promise<Encoding> {
  const [strict, lenient] = [new TextDecoder('utf-8', { fatal: true }), new TextDecoder('utf-8')];
  let [isFirst, isValid, bad, good] = [true, true, 0, 0];
  for await (const chunk of chunks) {
    if (isFirst && chunk[0] === 0xff && chunk[1] === 0xfe) return 'utf-16le';
    if (isFirst && chunk[0] === 0xfe && chunk[1] === 0xff) return 'utf-16be';
    isFirst = false;
    isValid &&= isDecoded(strict, chunk);
    const text = lenient.decode(chunk, { stream: true });
    if (isAscii(chunk)) continue;
    if ([0x81, 0x8d, 0x8f, 0x90, 0x9d].some((byte) => chunk.includes(byte))) good = Infinity;
    bad += text.match(/\ufffd/g)?.length ?? 0;
    good += text.match(/[^\0-\x7f\ufffd]/g)?.length ?? 0;
  }
  isValid &&= isDecoded(strict);
  return isValid || bad + lenient.decode().length <= good ? 'utf-8' : 'windows-1252';
}

function isDecoded(decoder: InstanceType<typeof TextDecoder>, chunk?: Buffer): boolean {
  try {
    decoder.decode(chunk, { stream: chunk !== undefined });
    return true;
  } catch {
    return false;
  }
}

/** Converts a text in an encoding to UTF-8. */
export async function* asUtf8(chunks: AsyncIterable<Buffer>, encoding: Encoding): AsyncGenerator<Buffer> {
  if (encoding === 'utf-8') {
    yield* chunks;
    return;
  }
  const decoder = new TextDecoder(encoding);
  for await (const chunk of chunks) yield Buffer.from(decoder.decode(chunk, { stream: true }));
  yield Buffer.from(decoder.decode());
}
