import type { FileHandle } from 'node:fs/promises';

const mostPending = 4 * 1024 * 1024;

/**
 * Writes to the end of a file, in order, while its producer goes on: what comes during a write goes out together
 * with the next one. Memory is bounded, since a producer that is far ahead waits.
 */
export class BackgroundWriter {
  readonly #file: FileHandle;
  #pending: Uint8Array[] = [];
  #size = 0;
  #writing: Promise<void> | undefined;
  #failure: { error: unknown } | undefined;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Takes the next bytes, which must not change any more. @throws what a write before it failed with. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#check();
    this.#pending.push(bytes);
    this.#size += bytes.length;
    this.#writing ??= this.#drain();
    if (this.#size >= mostPending) await this.settle();
  }

  /** Resolves when everything has been written. @throws what a write failed with. */
  async settle(): Promise<void> {
    await this.#writing;
    this.#check();
  }

  async #drain(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const batch = this.#pending;
        this.#pending = [];
        this.#size = 0;
        await this.#put(batch.length === 1 && batch[0] ? batch[0] : Buffer.concat(batch));
      }
    } catch (error) {
      this.#failure = { error };
    }
    this.#writing = undefined;
  }

  async #put(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length;) done += (await this.#file.write(bytes, done)).bytesWritten;
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}
