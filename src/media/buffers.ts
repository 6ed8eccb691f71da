import type { Readable } from 'node:stream';

/** A buffer that grows up to a limit. */
export class ByteBuffer {
  length = 0;
  #bytes = Buffer.alloc(0);
  readonly #limit: number;

  /** @param limit the maximum length, in bytes */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Appends as much as fits. Returns false if some bytes did not fit. */
  append(bytes: Uint8Array): boolean {
    const accepted = bytes.subarray(0, this.#limit - this.length);
    this.#reserve(this.length + accepted.length);
    this.#bytes.set(accepted, this.length);
    this.length += accepted.length;
    return accepted.length === bytes.length;
  }

  /** Removes all bytes and returns them, valid until the next {@link append}. */
  takeAll(): Buffer {
    const content = this.#bytes.subarray(0, this.length);
    this.length = 0;
    return content;
  }

  /** Returns the bytes, decoded as UTF-8. */
  toString(): string {
    return this.#bytes.toString('utf8', 0, this.length);
  }

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const larger = Buffer.alloc(Math.min(this.#limit, Math.max(size, this.#bytes.length * 2, 4096)));
    larger.set(this.#bytes.subarray(0, this.length));
    this.#bytes = larger;
  }
}

/** Node's `onread` options, which determine where it stores the data from a connection. */
interface ReadInto {
  /** Returns the buffer for the next read. */
  buffer: () => Uint8Array;
  /** Receives the number of bytes read; returns false to pause reading. */
  callback: (length: number, buffer: Uint8Array) => boolean;
}

/** The initial size of a read, in bytes. Small bodies are read in this size. */
export const readBytes = 256 * 1024;
/** The maximum number of bytes to keep for reuse, for each buffer size. */
const maxFree = 16 * 1024 * 1024;

/** Free buffers by size. */
const freeBuffers = new Map<number, Buffer[]>();
/** The filled part of each buffer. */
const filledParts = new WeakMap<ArrayBufferLike, { buffer: Buffer; length: number }>();

/** Returns a buffer to fill (default size: {@link readBytes}). */
export function acquireBuffer(size = readBytes): Buffer {
  return freeBuffers.get(size)?.pop() ?? Buffer.allocUnsafeSlow(size);
}

/**
 * Returns the filled part of a buffer from {@link acquireBuffer}. The part belongs to its reader until it is released.
 */
export function filledBuffer(buffer: Buffer, length: number): Buffer {
  // A small part is copied, so that it does not keep the whole buffer in use.
  if (length < buffer.length / 4) {
    const copy = Buffer.from(buffer.subarray(0, length));
    keepForReuse(buffer);
    return copy;
  }
  filledParts.set(buffer.buffer, { buffer, length });
  return buffer.subarray(0, length);
}

/**
 * Returns options for reading from a connection without TLS in large chunks, into memory that is reused when the reader
 * releases it. By default, Node allocates memory for each read, which accounts for a third of the time needed to
 * receive a large body.
 * @param maxReadBytes the maximum size of a read, in bytes; reads become smaller if less data arrives. The cost of a
 * read does not depend on its size.
 */
export function reuseBuffers(maxReadBytes: number): ReadInto {
  let size = readBytes;
  return {
    buffer: () => acquireBuffer(size),
    callback(this: Readable, length: number, buffer: Uint8Array): boolean {
      size = length < readBytes ? readBytes : maxReadBytes;
      return this.push(filledBuffer(buffer as Buffer, length));
    },
  };
}

/**
 * Releases a chunk after its last use. Only a chunk that fills its whole buffer is reused, because other parts of a
 * buffer may still be in use. Other chunks are ignored.
 */
export function releaseBuffer(chunk: Uint8Array): void {
  const filledPart = filledParts.get(chunk.buffer);
  if (filledPart?.length !== chunk.length) return;
  filledParts.delete(chunk.buffer);
  keepForReuse(filledPart.buffer);
}

function keepForReuse(buffer: Buffer): void {
  const buffersOfSize = freeBuffers.get(buffer.length) ?? [];
  freeBuffers.set(buffer.length, buffersOfSize);
  if (buffersOfSize.length * buffer.length < maxFree) buffersOfSize.push(buffer);
}
