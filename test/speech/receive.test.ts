import { Readable } from 'node:stream';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { deadlineIn, maxTimerMs, systemClock } from '../../src/clock.ts';
import { filledBuffer, releaseBuffer, acquireBuffer } from '../../src/media/buffers.ts';
import { receive } from '../../src/speech/audio-stream.ts';

// Limits that are not reached even on a slow machine.
const limits = { idleMs: maxTimerMs, deadline: deadlineIn(maxTimerMs, systemClock) };

/** Yields a stream in chunks that end at the given offsets. Each chunk's memory is reused for the next. */
function* read(stream: Buffer, cuts: readonly number[]): Generator<Uint8Array> {
  const ends = [...cuts.map((cut) => cut % stream.length), stream.length].sort((one, other) => one - other);
  let start = 0;
  for (const end of ends)
    while (start < end) {
      const room = acquireBuffer();
      const length = stream.copy(room, 0, start, end);
      start += length;
      yield filledBuffer(room, length);
    }
}

const audio = fc
  .tuple(fc.oneof(fc.nat({ max: 20 }), fc.nat({ max: 400_000 })), fc.nat({ max: 255 }))
  .map(([length, value]) => Buffer.alloc(length, value));

test('speech audio of any size, in any chunks, is received completely and in order', async () => {
  const property = fc.asyncProperty(fc.array(audio), fc.array(fc.nat()), async (pieces, cuts) => {
    const frames = [Buffer.from('a'), ...pieces].map((piece) => ({
      code: 0,
      data: piece.toString('base64'),
    }));
    const end = { code: 20_000_000, message: 'ok' };
    const stream = Buffer.from([...frames, end].map((frame) => JSON.stringify(frame)).join('\n'));
    const chunks: Buffer[] = [];
    const write = async (chunk: Uint8Array): Promise<void> => {
      await Promise.resolve();
      chunks.push(Buffer.from(chunk));
      releaseBuffer(chunk);
    };
    expect(await receive(Readable.from(read(stream, cuts)), write, limits)).toEqual({ kind: 'whole' });
    expect(Buffer.concat(chunks).equals(Buffer.concat([Buffer.from('a'), ...pieces]))).toBe(true);
  });
  await fc.assert(property, { numRuns: 20 });
});
