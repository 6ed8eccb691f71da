import type { Readable } from 'node:stream';

/** How a connection reads, as Node takes it. */
interface ReadInto {
  /** Where the next read goes. */
  buffer: () => Uint8Array;
  /** So much of it was read; false if no more is wanted for now. */
  callback: (length: number, buffer: Uint8Array) => boolean;
}

/** How much is read at a time at first, and if that is all that is wanted, bytes. */
export const readBytes = 256 * 1024;
/** So much of each size is kept for the next use, bytes. */
const maxFree = 16 * 1024 * 1024;

/** By their size. */
const free = new Map<number, Buffer[]>();
/** What each was last filled with. */
const filled = new WeakMap<ArrayBufferLike, { buffer: Buffer; length: number }>();

/** Memory to be filled, {@link readBytes} unless told. */
export function takeBuffer(size = readBytes): Buffer {
  return free.get(size)?.pop() ?? Buffer.allocUnsafeSlow(size);
}

/** What {@link takeBuffer} gave, filled so far: until it is given back, it is its reader's. */
export function filledBuffer(buffer: Buffer, length: number): Buffer {
  // Of little the whole would be kept for as long as that is.
  if (length < buffer.length / 4) {
    const little = Buffer.from(buffer.subarray(0, length));
    keep(buffer);
    return little;
  }
  filled.set(buffer.buffer, { buffer, length });
  return buffer.subarray(0, length);
}

/**
 * How a plain connection reads: large chunks, into memory that is reused once the reader gives it back.
 * Node by itself takes new memory for each read, and a third of the time that a large body takes goes into that.
 * @param most how much at a time while that much comes, bytes: each read costs the same whatever it brings
 */
export function intoReusedBuffers(most: number): ReadInto {
  let size = readBytes;
  return {
    buffer: () => takeBuffer(size),
    callback(this: Readable, length: number, buffer: Uint8Array): boolean {
      size = length < readBytes ? readBytes : most;
      return this.push(filledBuffer(buffer as Buffer, length));
    },
  };
}

/**
 * Gives a chunk back after its last use. Only a chunk that fills its whole buffer is taken back: of
 * others a part may be in use still. Anything else is left alone.
 */
export function giveBack(chunk: Uint8Array): void {
  const whole = filled.get(chunk.buffer);
  if (whole?.length !== chunk.length) return;
  filled.delete(chunk.buffer);
  keep(whole.buffer);
}

function keep(buffer: Buffer): void {
  const kept = free.get(buffer.length) ?? [];
  free.set(buffer.length, kept);
  if (kept.length * buffer.length < maxFree) kept.push(buffer);
}
