import type { Readable } from 'node:stream';
import type { Clock } from '../../clock.ts';
import type { IdleWatch } from './idle-watch.ts';

/** A body that knows whether its end was the one that was announced. */
type Body = Readable & { readonly complete: boolean };

/** How a body is gathered. */
export interface BatchOptions {
  /** The least size of the first batch, bytes, if the body is that long. */
  firstBytes: number;
  /** The least size of a further batch, bytes, if it is not the last. */
  bytes: number;
  /** A further batch is handed out at this age whatever its size, ms. */
  maxAgeMs: number;
  clock: Clock;
  watch: IdleWatch;
}

/**
 * A body as batches of chunks, as they are worth a write. While one batch is with the reader the next is
 * gathered, and no more than that: then the sender has to wait. What came before a break is handed out before
 * the break is thrown.
 */
export async function* batches(message: Body, options: BatchOptions): AsyncGenerator<Buffer[], void> {
  const gathering = new Gathering(message, options);
  try {
    for (;;) {
      const batch = await gathering.next();
      if (batch === undefined) return;
      yield batch;
    }
  } finally {
    message.destroy();
  }
}

class Gathering {
  readonly #message: Body;
  readonly #options: BatchOptions;
  #least: number;
  #chunks: Buffer[] = [];
  #size = 0;
  #since = 0;
  #end: 'open' | 'ended' | 'broken' = 'open';
  #error: Error = new Error('it was cut');
  #wake: () => void = () => undefined;

  constructor(message: Body, options: BatchOptions) {
    this.#message = message;
    this.#options = options;
    this.#least = options.firstBytes;
    message.on('data', (chunk: Buffer) => this.#take(chunk));
    message.once('error', (error) => (this.#error = error));
    message.once('end', () => this.#finish(message.complete ? 'ended' : 'broken'));
    message.once('close', () => this.#finish('broken'));
    // It may have broken before anyone listened, and then says nothing more.
    if (message.destroyed) {
      this.#error = message.errored ?? this.#error;
      this.#finish('broken');
    }
  }

  async next(): Promise<Buffer[] | undefined> {
    if (!this.#isDue() && this.#end === 'open') await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#size > 0) return this.#handOut();
    if (this.#end === 'broken') throw this.#error;
    return undefined;
  }

  #take(chunk: Buffer): void {
    const { clock, watch } = this.#options;
    if (this.#size === 0) this.#since = clock.monotonic();
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    watch.touch();
    if (!this.#isDue()) return;
    this.#message.pause();
    watch.hold();
    this.#wake();
  }

  #isDue(): boolean {
    if (this.#size >= this.#least) return true;
    const isFirst = this.#least === this.#options.firstBytes;
    return (
      this.#size > 0 && !isFirst && this.#options.clock.monotonic() - this.#since >= this.#options.maxAgeMs
    );
  }

  #handOut(): Buffer[] {
    const batch = this.#chunks;
    this.#chunks = [];
    this.#size = 0;
    this.#least = this.#options.bytes;
    if (this.#end === 'open') {
      this.#options.watch.touch();
      this.#message.resume();
    }
    return batch;
  }

  #finish(end: 'ended' | 'broken'): void {
    if (this.#end === 'open') this.#end = end;
    this.#wake();
  }
}
