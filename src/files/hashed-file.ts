import { createHash, type Hash } from 'node:crypto';
import { closeSync, ftruncateSync, writeSync, writev, writevSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { syncFile } from './make-folder.ts';
import { localError } from '../errors.ts';
import { releaseBuffer } from '../media/buffers.ts';
import { hashFile, maxSyncBytes, versionOf, type SealedFile } from './whole-file.ts';

const maxPending = 4 * 1024 * 1024;

/**
 * A file that is hashed while it is written from beginning to end. Data that arrives during a write is collected for
 * the next write. Memory is bounded, because a fast producer has to wait. Every method throws MgwError('local_io'),
 * charged 'yes', if the disk fails.
 */
export class HashedFile {
  readonly path: string;
  /** The file descriptor, for reading while the file is open. */
  readonly descriptor: number;
  /** Hashes the written bytes; undefined if a thread does, or if bytes existed before or were overwritten. */
  #hash: Hash | undefined;
  #thread: HashThread | undefined;
  readonly #maxHashedHere: number;
  #hasTriedThread = false;
  #length: number;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #writing: Promise<void> | undefined;
  #failure: { error: unknown } | undefined;

  /**
   * @param file the descriptor, open for reading and writing; this class closes it
   * @param length the number of existing bytes to keep
   * @param maxHashedHere the length in bytes above which a thread computes the hash; a thread takes time to start and
   * needs tens of MB of memory
   */
  constructor(path: string, file: number, length = 0, maxHashedHere = Infinity) {
    this.path = path;
    this.descriptor = file;
    this.#length = length;
    this.#maxHashedHere = maxHashedHere;
    this.#hash = length === 0 ? createHash('sha256') : undefined;
  }

  /** The number of bytes written, without pending writes. */
  get length(): number {
    return this.#length;
  }

  /** Writes the next bytes. The caller must not change them before {@link settle} has returned. */
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    this.#check();
    for (const chunk of chunks) {
      this.#pending.push(chunk);
      this.#pendingBytes += chunk.length;
    }
    const isSmall = this.#writing === undefined && this.#pendingBytes <= maxSyncBytes;
    if (!isSmall) this.#writing ??= this.#drain();
    // Hash the chunks while the first of them are being written.
    for (const chunk of chunks) this.#hash?.update(chunk);
    if (isSmall) this.#drainSmall();
    if (this.#pendingBytes >= maxPending) await this.settle();
  }

  /** Overwrites the bytes at offset `at`, such as the lengths in a header. */
  async overwrite(bytes: Uint8Array, at: number): Promise<void> {
    await this.settle();
    await this.#discardHash();
    await this.#attempt(() => writeSync(this.descriptor, bytes, 0, bytes.length, at));
  }

  /** Waits for pending writes. */
  async settle(): Promise<void> {
    await this.#writing;
    this.#check();
  }

  /** Empties the file and starts again. */
  async restart(): Promise<void> {
    await this.settle();
    if (this.#length === 0 && this.#hash !== undefined) return;
    await this.#discardHash();
    await this.#attempt(() => ftruncateSync(this.descriptor));
    this.#hash = createHash('sha256');
    this.#length = 0;
  }

  /** Syncs the written bytes to disk, and returns their number. */
  async sync(): Promise<number> {
    const length = this.#length;
    await this.#attempt(() => syncFile(this.descriptor));
    return length;
  }

  /** Makes the whole file durable, and returns its hash. Nothing may be written afterwards. */
  async seal(): Promise<SealedFile> {
    await this.settle();
    const bytes = await this.sync();
    const sha256 = await this.#attempt(() => this.#digest());
    return { path: this.path, bytes, sha256, version: await this.#attempt(() => versionOf(this.descriptor)) };
  }

  /** Waits for pending writes, and closes the file. */
  async close(): Promise<void> {
    await this.#writing;
    await this.#discardHash();
    closeSync(this.descriptor);
  }

  async #digest(): Promise<string> {
    // If the thread has failed, for example for lack of memory, the current thread hashes the file.
    const threadDigest = await this.#thread?.digest(this.#length).catch(() => undefined);
    return threadDigest ?? (this.#hash ?? (await hashFile(this.descriptor))).digest('hex');
  }

  async #discardHash(): Promise<void> {
    this.#hash = undefined;
    await this.#thread?.end();
    this.#thread = undefined;
    this.#hasTriedThread = false;
  }

  // Tries once to start a thread. If that fails, the current thread computes the hash.
  #notifyThread(): void {
    if (this.#length > this.#maxHashedHere && !this.#hasTriedThread) {
      this.#hasTriedThread = true;
      this.#thread = HashThread.begin(this.descriptor);
      if (this.#thread !== undefined) this.#hash = undefined;
    }
    this.#thread?.notifyWritten(this.#length);
  }

  // Writes small data synchronously, because that is faster than a write in the thread pool.
  #drainSmall(): void {
    try {
      const batch = this.#dequeue();
      for (let remaining = batch; remaining.length > 0;)
        remaining = this.#advance(remaining, writevSync(this.descriptor, remaining, this.#length));
      this.#finishBatch(batch);
    } catch (error) {
      this.#failure = { error };
    }
  }

  async #drain(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const batch = this.#dequeue();
        for (let remaining = batch; remaining.length > 0;)
          remaining = this.#advance(remaining, await writeChunks(this.descriptor, remaining, this.#length));
        this.#finishBatch(batch);
      }
    } catch (error) {
      this.#failure = { error };
    }
    this.#writing = undefined;
  }

  #dequeue(): Uint8Array[] {
    const batch = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    return batch;
  }

  #advance(chunks: Uint8Array[], bytes: number): Uint8Array[] {
    this.#length += bytes;
    return chunksAfter(chunks, bytes);
  }

  #finishBatch(batch: Uint8Array[]): void {
    for (const chunk of batch) releaseBuffer(chunk);
    this.#notifyThread();
  }

  #check(): void {
    if (this.#failure !== undefined) throw localError(this.#failure.error, this.path, 'yes');
  }

  async #attempt<T>(work: () => Promise<T> | T): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw localError(error, this.path, 'yes');
    }
  }
}

function writeChunks(file: number, chunks: Uint8Array[], at: number): Promise<number> {
  return new Promise((resolve, reject) =>
    writev(file, chunks, at, (error, bytes) => (error === null ? resolve(bytes) : reject(error))),
  );
}

// Returns a batch's chunks after its first `bytes` bytes.
function chunksAfter(chunks: Uint8Array[], bytes: number): Uint8Array[] {
  let remaining = bytes;
  // `left` becomes negative at the first chunk to keep. `-left` is then the number of its bytes to keep.
  const first = chunks.findIndex((chunk) => (remaining -= chunk.length) < 0);
  if (first === -1) return [];
  const partialChunk = chunks[first]?.subarray(remaining) ?? Buffer.alloc(0);
  return [partialChunk, ...chunks.slice(first + 1)];
}

/** A message to the hashing thread: the number of bytes written, and whether the file is complete. */
interface WriteProgress {
  length: number;
  isComplete: boolean;
}

/** The thread is notified once per this number of bytes, because each message costs time. */
const notifyBytes = 8 * 1024 * 1024;

/**
 * Computes a file's SHA-256 while the file is written, in a thread that reads the written bytes back from the file. The
 * bytes are still in the system's cache, and the main thread is not delayed.
 */
export class HashThread {
  readonly #worker: Worker;
  readonly #digest: Promise<string>;
  #notified = 0;

  /**
   * Starts a thread for a file. The file must remain open for reading until {@link end} has returned. Returns undefined
   * if there is only one processor, or if the thread cannot be started.
   */
  static begin(fd: number): HashThread | undefined {
    try {
      return availableParallelism() > 1 ? new HashThread(fd) : undefined;
    } catch {
      return undefined;
    }
  }

  private constructor(fd: number) {
    this.#worker = new Worker(`(${runThread.toString()})()`, {
      eval: true,
      workerData: fd,
      execArgv: [],
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 4 },
    });
    this.#worker.unref();
    this.#digest = new Promise((resolve, reject) => {
      this.#worker.once('message', resolve).once('error', reject);
      this.#worker.once('exit', () => reject(new Error('the thread has ended')));
    });
    // The error is reported when the digest is requested.
    this.#digest.catch(() => undefined);
  }

  /** Notifies the thread of the number of bytes written. */
  notifyWritten(length: number): void {
    if (length - this.#notified < notifyBytes) return;
    this.#notified = length;
    this.#worker.postMessage({ length, isComplete: false } satisfies WriteProgress);
  }

  /** Returns the hash of the whole file, in lower-case hexadecimal. @throws Error if the thread has failed. */
  digest(length: number): Promise<string> {
    this.#worker.postMessage({ length, isComplete: true } satisfies WriteProgress);
    this.#worker.ref();
    return this.#digest;
  }

  /** Stops the thread. */
  async end(): Promise<void> {
    await this.#worker.terminate();
  }
}

// Runs in the thread. Its source is passed as text, so it cannot use anything else from this file.
function runThread(): void {
  const { createHash } = process.getBuiltinModule('node:crypto');
  const { readSync } = process.getBuiltinModule('node:fs');
  const { parentPort, ...thread } = process.getBuiltinModule('node:worker_threads');
  const fd = thread.workerData as number;
  const hash = createHash('sha256');
  const chunk = Buffer.allocUnsafeSlow(256 * 1024);
  let at = 0;
  parentPort?.on('message', ({ length, isComplete }: WriteProgress) => {
    while (at < length) {
      const read = readSync(fd, chunk, 0, Math.min(chunk.length, length - at), at);
      if (read === 0) throw new Error('the file is shorter than what was written to it');
      hash.update(chunk.subarray(0, read));
      at += read;
    }
    if (isComplete) parentPort.postMessage(hash.digest('hex'));
  });
}
