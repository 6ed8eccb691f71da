/**
 * A stream that is read as it arrives, at once and up to `maxBytes` ahead of whoever takes it: what has come
 * survives a reset that follows, since a connection that breaks drops what nobody has read yet.
 */
export function readAhead(source: AsyncIterable<Uint8Array>, maxBytes: number): AsyncIterable<Uint8Array> {
  const ahead = new ReadAhead(maxBytes);
  void ahead.fill(source);
  return ahead;
}

class ReadAhead implements AsyncIterable<Uint8Array> {
  readonly #maxBytes: number;
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  #end: { error?: unknown } | undefined;
  /** Wakes the side that waits: the filler for room, or the reader for more. */
  #wake: () => void = () => undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  async fill(source: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const chunk of source) {
        this.#chunks.push(chunk);
        this.#size += chunk.length;
        this.#wake();
        while (this.#size >= this.#maxBytes) await this.#change();
      }
      this.#end = {};
    } catch (error) {
      this.#end = { error };
    }
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#size -= chunk.length;
        this.#wake();
        yield chunk;
      } else if (this.#end !== undefined) {
        if ('error' in this.#end) throw this.#end.error;
        return;
      } else {
        await this.#change();
      }
    }
  }

  #change(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}
