import type { Readable } from 'node:stream';

/** How a connection reads, as Node takes it. */
export interface ReadInto {
  /** Where the next read goes. */
  buffer: () => Uint8Array;
  /** So much of it was read; false where no more is wanted for now. */
  callback: (length: number, buffer: Uint8Array) => boolean;
}

const size = 128 * 1024;
/** So many are kept for the next read, 8 MiB in all. */
const mostFree = 64;

const free: Uint8Array[] = [];
/** What the last read put into each. */
const filled = new WeakMap<ArrayBufferLike, { buffer: Uint8Array; length: number }>();
/** The buffer whose content was copied, and that is read into again. */
let spare: Uint8Array | undefined;

/**
 * How a plain connection reads: much at a time, into memory that is used again once whoever has read it gives it back.
 * Node by itself takes new memory for each read, and a third of the time that a large body takes goes into that.
 */
export const intoReadBuffers: ReadInto = {
  buffer: () => {
    const next = spare ?? free.pop() ?? Buffer.allocUnsafeSlow(size);
    spare = undefined;
    return next;
  },
  callback(this: Readable, length: number, buffer: Uint8Array): boolean {
    // Of little the whole would be kept for as long as that is.
    if (length < size / 4) {
      spare = buffer;
      return this.push(Buffer.from(buffer.subarray(0, length)));
    }
    filled.set(buffer.buffer, { buffer, length });
    return this.push(buffer.subarray(0, length));
  },
};

/**
 * Says of a chunk that was read that nobody will look at it again. Only one that is all of a read is taken back: of
 * others a part may be in use still. Anything else is left alone.
 */
export function giveBack(chunk: Uint8Array): void {
  const read = filled.get(chunk.buffer);
  if (read?.length !== chunk.length) return;
  filled.delete(chunk.buffer);
  if (free.length < mostFree) free.push(read.buffer);
}
