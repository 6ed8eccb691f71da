import type { Readable } from 'node:stream';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { releaseBuffer, reuseBuffers, readBytes } from '../../src/media/buffers.ts';

const max = 1024 * 1024;

/** Simulates a connection. `room` returns the next buffer's size, and `read` the chunk that the reader receives. */
function connection(): { room: () => number; read: (length: number, value: number) => Uint8Array } {
  const { buffer, callback } = reuseBuffers(max);
  const buffers: Uint8Array[] = [];
  const reader = { push: (chunk: Uint8Array) => buffers.push(chunk) > 0 } as unknown as Readable;
  let next = buffer();
  return {
    room: () => next.length,
    read: (length, value) => {
      callback.call(reader, length, next.fill(value, 0, length));
      next = buffer();
      return buffers.pop() ?? Buffer.alloc(0);
    },
  };
}

it('a read buffer grows while large reads arrive', () => {
  const { room, read } = connection();
  expect(room()).toBe(readBytes);
  read(readBytes - 1, 0);
  expect(room()).toBe(readBytes);
  read(readBytes, 0);
  expect(room()).toBe(max);
  read(readBytes, 0);
  expect(room()).toBe(max);
  read(1, 0);
  expect(room()).toBe(readBytes);
});

it('a read buffer in use is not overwritten until it is returned', () => {
  const share = fc.double({ min: 0, max: 1, noNaN: true });
  const reads = fc.array(fc.record({ share, isKept: fc.boolean() }), { maxLength: 20 });
  fc.assert(
    fc.property(reads, (steps) => {
      const { room, read } = connection();
      const kept: { chunk: Uint8Array; length: number; value: number }[] = [];
      for (const [value, { share, isKept }] of steps.entries()) {
        const length = Math.ceil(share * room()) || 1;
        const chunk = read(length, value);
        if (isKept) kept.push({ chunk, length, value });
        else releaseBuffer(chunk);
      }
      for (const { chunk, length, value } of kept)
        expect(Buffer.alloc(length, value).equals(chunk)).toBe(true);
    }),
    { numRuns: 40 },
  );
});

it('a returned read buffer is used again', () => {
  const { read } = connection();
  read(readBytes, 1);
  const second = read(max, 2);
  releaseBuffer(second);
  // This read's buffer was allocated before the release.
  read(max, 3);
  expect(read(max, 4).buffer === second.buffer).toBe(true);
});
