const newline = 0x0a;

/**
 * Splits bytes into blocks of complete lines. The last line may lack its line break. Memory use depends only on the
 * length of the lines.
 * @throws the error from `tooLong` if a line is longer than `maxLineBytes`. A line that exceeds this limit by less than
 * one chunk may be accepted.
 */
export async function* lineBlocks(
  chunks: AsyncIterable<Buffer>,
  maxLineBytes: number,
  tooLong: () => Error,
): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let bufferedBytes = 0;
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(newline) + 1;
    if (end === 0) {
      parts.push(chunk);
      bufferedBytes += chunk.length;
      if (bufferedBytes > maxLineBytes) throw tooLong();
      continue;
    }
    yield Buffer.concat([...parts, chunk.subarray(0, end)]);
    parts = [chunk.subarray(end)];
    bufferedBytes = chunk.length - end;
  }
  const lastLine = Buffer.concat(parts);
  if (lastLine.length > 0) yield lastLine;
}
