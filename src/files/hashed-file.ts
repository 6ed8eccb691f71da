import { createHash, type Hash } from 'node:crypto';
import { closeSync, ftruncateSync, writeSync, writev, writevSync } from 'node:fs';
import { syncFile } from './make-folder.ts';
import { HashThread } from './hash-thread.ts';
import { localError } from './local-error.ts';
import { giveBack } from './reused-buffers.ts';
import { hashOf, littleBytes, versionOf, type SealedFile } from './whole-file.ts';

const maxPending = 4 * 1024 * 1024;

/**
 * A file that is hashed while it is written, from its beginning to its end. What comes during a write goes out together
 * with the next one; memory is bounded, since a producer that is far ahead waits. Every method throws
 * MgwError('local_io'), charged 'yes', if the disk fails.
 */
export class HashedFile {
  readonly path: string;
  readonly #file: number;
  /** The hash of the bytes written here; undefined once a thread computes it, or if the file holds other bytes. */
  #hash: Hash | undefined;
  #thread: HashThread | undefined;
  readonly #maxHashedHere: number;
  #isFollowed = false;
  #length: number;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #writing: Promise<void> | undefined;
  #failure: { error: unknown } | undefined;

  /**
   * @param file its descriptor, open for reading and writing; it is closed here
   * @param length how many bytes of the open file to keep
   * @param maxHashedHere a file that is longer, bytes, is hashed by a thread; that takes tens of MB, and a moment to begin
   */
  constructor(path: string, file: number, length = 0, maxHashedHere = Infinity) {
    this.path = path;
    this.#file = file;
    this.#length = length;
    this.#maxHashedHere = maxHashedHere;
    this.#hash = length === 0 ? createHash('sha256') : undefined;
  }

  /** For reading, as long as it is open. */
  get descriptor(): number {
    return this.#file;
  }

  /** Bytes that are written; what is still on its way is not among them. */
  get length(): number {
    return this.#length;
  }

  /** Takes the next bytes, which must not change before {@link settle}. */
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    this.#check();
    for (const chunk of chunks) {
      this.#pending.push(chunk);
      this.#pendingBytes += chunk.length;
    }
    const isLittle = this.#writing === undefined && this.#pendingBytes <= littleBytes;
    if (!isLittle) this.#writing ??= this.#drain();
    // While the first of them are on their way to the disk.
    for (const chunk of chunks) this.#hash?.update(chunk);
    if (isLittle) this.#drainLittle();
    if (this.#pendingBytes >= maxPending) await this.settle();
  }

  /** Overwrites the bytes at `at`, such as the lengths in a header. */
  async overwrite(bytes: Uint8Array, at: number): Promise<void> {
    await this.settle();
    await this.#forget();
    await this.#onDisk(() => writeSync(this.#file, bytes, 0, bytes.length, at));
  }

  /** Waits for what is on its way. */
  async settle(): Promise<void> {
    await this.#writing;
    this.#check();
  }

  /** Begins anew, with an empty file. */
  async restart(): Promise<void> {
    await this.settle();
    if (this.#length === 0 && this.#hash !== undefined) return;
    await this.#forget();
    await this.#onDisk(() => ftruncateSync(this.#file));
    this.#hash = createHash('sha256');
    this.#length = 0;
  }

  /** Makes what is written durable; gives how much that is, bytes. */
  async sync(): Promise<number> {
    const length = this.#length;
    await this.#onDisk(() => syncFile(this.#file));
    return length;
  }

  /** Makes the whole file durable and says what it is. Nothing may be written after that. */
  async seal(): Promise<SealedFile> {
    await this.settle();
    const bytes = await this.sync();
    const sha256 = await this.#onDisk(() => this.#digest());
    return { path: this.path, bytes, sha256, version: await this.#onDisk(() => versionOf(this.#file)) };
  }

  /** Closes the file, once nothing is on its way any more. */
  async close(): Promise<void> {
    await this.#writing;
    await this.#forget();
    closeSync(this.#file);
  }

  async #digest(): Promise<string> {
    // A thread that has failed, for want of memory, costs no more than the time.
    const threads = await this.#thread?.digest(this.#length).catch(() => undefined);
    return threads ?? (this.#hash ?? (await hashOf(this.#file))).digest('hex');
  }

  async #forget(): Promise<void> {
    this.#hash = undefined;
    await this.#thread?.end();
    this.#thread = undefined;
    this.#isFollowed = false;
  }

  // Tried once; what has no thread is hashed here.
  #follow(): void {
    if (this.#length > this.#maxHashedHere && !this.#isFollowed) {
      this.#isFollowed = true;
      this.#thread = HashThread.begin(this.#file);
      if (this.#thread !== undefined) this.#hash = undefined;
    }
    this.#thread?.reached(this.#length);
  }

  // It is written before a thread could be told of it.
  #drainLittle(): void {
    try {
      const batch = this.#taken();
      for (let rest = batch; rest.length > 0;)
        rest = this.#after(rest, writevSync(this.#file, rest, this.#length));
      this.#wrote(batch);
    } catch (error) {
      this.#failure = { error };
    }
  }

  async #drain(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const batch = this.#taken();
        for (let rest = batch; rest.length > 0;)
          rest = this.#after(rest, await written(this.#file, rest, this.#length));
        this.#wrote(batch);
      }
    } catch (error) {
      this.#failure = { error };
    }
    this.#writing = undefined;
  }

  #taken(): Uint8Array[] {
    const batch = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    return batch;
  }

  #after(chunks: Uint8Array[], bytes: number): Uint8Array[] {
    this.#length += bytes;
    return after(chunks, bytes);
  }

  #wrote(batch: Uint8Array[]): void {
    for (const chunk of batch) giveBack(chunk);
    this.#follow();
  }

  #check(): void {
    if (this.#failure !== undefined) throw localError(this.#failure.error, this.path, 'yes');
  }

  async #onDisk<T>(work: () => Promise<T> | T): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw localError(error, this.path, 'yes');
    }
  }
}

function written(file: number, chunks: Uint8Array[], at: number): Promise<number> {
  return new Promise((resolve, reject) =>
    writev(file, chunks, at, (error, bytes) => (error === null ? resolve(bytes) : reject(error))),
  );
}

// What is left of a batch after its first bytes.
function after(chunks: Uint8Array[], bytes: number): Uint8Array[] {
  let left = bytes;
  // Where the first chunk with something left is found, `left` is that much below zero.
  const first = chunks.findIndex((chunk) => (left -= chunk.length) < 0);
  if (first === -1) return [];
  const cut = chunks[first]?.subarray(left) ?? Buffer.alloc(0);
  return [cut, ...chunks.slice(first + 1)];
}
