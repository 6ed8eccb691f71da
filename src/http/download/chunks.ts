import type { Readable } from 'node:stream';
import type { Clock } from '../../clock.ts';
import type { IdleWatch } from '../deadline.ts';

/** A body that records whether it ended as announced. */
type Body = Readable & { readonly complete: boolean };

/** Options of {@link readBatches}. */
export interface BatchOptions {
  /** The minimum size of the first batch, in bytes, if the body is that long. */
  minFirstBytes: number;
  /** The minimum size of every later batch except the last, in bytes. */
  minBytes: number;
  /** The age, in ms, at which a batch other than the first is returned regardless of its size. */
  maxAgeMs: number;
  clock: Clock;
  watch: IdleWatch;
}

/**
 * Collects a body into batches that are large enough to be worth a write. The next batch is collected while the reader
 * handles one. If the next batch is full too, the sender must wait. If the body breaks, the bytes before the break are
 * returned before the error is thrown.
 */
export async function* readBatches(message: Body, options: BatchOptions): AsyncGenerator<Buffer[], void> {
  const reader = new BatchReader(message, options);
  try {
    for (;;) {
      const batch = await reader.next();
      if (batch === undefined) return;
      yield batch;
    }
  } finally {
    message.destroy();
  }
}

class BatchReader {
  readonly #message: Body;
  readonly #options: BatchOptions;
  #minSize: number;
  #chunks: Buffer[] = [];
  #size = 0;
  #startedAt = 0;
  #state: 'open' | 'ended' | 'broken' = 'open';
  #error: Error = new Error('the body was cut off');
  #wake: () => void = () => undefined;

  constructor(message: Body, options: BatchOptions) {
    this.#message = message;
    this.#options = options;
    this.#minSize = options.minFirstBytes;
    message.on('data', (chunk: Buffer) => this.#add(chunk));
    message.once('error', (error) => (this.#error = error));
    message.once('end', () => this.#finish(message.complete ? 'ended' : 'broken'));
    message.once('close', () => this.#finish('broken'));
    // A body that broke before these listeners were added emits no more events.
    if (message.destroyed) {
      this.#error = message.errored ?? this.#error;
      this.#finish('broken');
    }
  }

  async next(): Promise<Buffer[] | undefined> {
    if (!this.#isDue() && this.#state === 'open')
      await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#size > 0) return this.#nextBatch();
    if (this.#state === 'broken') throw this.#error;
    return undefined;
  }

  #add(chunk: Buffer): void {
    const { clock, watch } = this.#options;
    if (this.#size === 0) this.#startedAt = clock.monotonic();
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    watch.touch();
    if (!this.#isDue()) return;
    this.#message.pause();
    watch.pause();
    this.#wake();
  }

  #isDue(): boolean {
    if (this.#size >= this.#minSize) return true;
    const isFirst = this.#minSize === this.#options.minFirstBytes;
    return (
      this.#size > 0 &&
      !isFirst &&
      this.#options.clock.monotonic() - this.#startedAt >= this.#options.maxAgeMs
    );
  }

  #nextBatch(): Buffer[] {
    const batch = this.#chunks;
    this.#chunks = [];
    this.#size = 0;
    this.#minSize = this.#options.minBytes;
    if (this.#state === 'open') {
      this.#options.watch.touch();
      this.#message.resume();
    }
    return batch;
  }

  #finish(end: 'ended' | 'broken'): void {
    if (this.#state === 'open') this.#state = end;
    this.#wake();
  }
}
