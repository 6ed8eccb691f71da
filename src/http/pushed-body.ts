/** Whoever pushes: it can be told to wait. */
interface Source {
  pause(): void;
  resume(): void;
}

/** A body that is pushed by its source and taken by its reader; a source that is too far ahead waits. */
export class PushedBody implements AsyncIterable<Uint8Array> {
  readonly #mostAhead: number;
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  #end: { error?: Error } | undefined;
  #waiting: Source | undefined;
  #wake: () => void = () => undefined;

  /** @param mostAhead after so many bytes that nobody has taken the source waits */
  constructor(mostAhead: number) {
    this.#mostAhead = mostAhead;
  }

  push(chunk: Uint8Array, source: Source): void {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    if (this.#size >= this.#mostAhead) {
      this.#waiting = source;
      source.pause();
    }
    this.#wake();
  }

  /** Ends it: what was pushed is taken first, then the error is thrown, if there is one. */
  end(error?: Error): void {
    this.#end ??= { error };
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#take(chunk.length);
        yield chunk;
      } else if (this.#end !== undefined) {
        if (this.#end.error !== undefined) throw this.#end.error;
        return;
      } else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    }
  }

  #take(bytes: number): void {
    this.#size -= bytes;
    if (this.#size >= this.#mostAhead) return;
    const source = this.#waiting;
    this.#waiting = undefined;
    // It may push at once, and be told to wait again.
    source?.resume();
  }
}
