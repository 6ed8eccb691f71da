import type { Readable } from 'node:stream';

/** How a connection reads, as Node takes it. */
interface ReadInto {
  /** Where the next read goes. */
  buffer: () => Uint8Array;
  /** So much of it was read; false where no more is wanted for now. */
  callback: (length: number, buffer: Uint8Array) => boolean;
}

const size = 256 * 1024;
/** So many are kept for the next use, 16 MiB in all. */
const mostFree = 64;

const free: Buffer[] = [];
/** What each was last filled with. */
const filled = new WeakMap<ArrayBufferLike, { buffer: Buffer; length: number }>();
/** The one whose content was copied, and that is used again at once. */
let spare: Buffer | undefined;

/** Memory to be filled, 256 KiB. */
export function takeBuffer(): Buffer {
  const next = spare ?? free.pop() ?? Buffer.allocUnsafeSlow(size);
  spare = undefined;
  return next;
}

/** What {@link takeBuffer} gave, filled so far: until it is given back, it is its reader's. */
export function filledBuffer(buffer: Buffer, length: number): Buffer {
  // Of little the whole would be kept for as long as that is.
  if (length < size / 4) {
    spare = buffer;
    return Buffer.from(buffer.subarray(0, length));
  }
  filled.set(buffer.buffer, { buffer, length });
  return buffer.subarray(0, length);
}

/**
 * How a plain connection reads: much at a time, into memory that is used again once whoever has read it gives it back.
 * Node by itself takes new memory for each read, and a third of the time that a large body takes goes into that.
 */
export const intoReusedBuffers: ReadInto = {
  buffer: takeBuffer,
  callback(this: Readable, length: number, buffer: Uint8Array): boolean {
    return this.push(filledBuffer(buffer as Buffer, length));
  },
};

/**
 * Says of a chunk that nobody will look at it again. Only one that is all of what was filled is taken back: of
 * others a part may be in use still. Anything else is left alone.
 */
export function giveBack(chunk: Uint8Array): void {
  const whole = filled.get(chunk.buffer);
  if (whole?.length !== chunk.length) return;
  filled.delete(chunk.buffer);
  if (free.length < mostFree) free.push(whole.buffer);
}
