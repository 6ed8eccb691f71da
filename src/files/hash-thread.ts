import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';

/** What a thread is told: how much of the file is written, and whether that is all. */
interface Written {
  length: number;
  isWhole: boolean;
}

/** The thread is woken for so much, bytes: each time costs both sides, and what was written lately is in memory still. */
const wakeBytes = 8 * 1024 * 1024;

/**
 * The SHA-256 of a file while it is written, in a thread of its own, which reads what has been written from the file:
 * the bytes are in memory still, and the thread that receives them is not held up.
 */
export class HashThread {
  readonly #worker: Worker;
  readonly #digest: Promise<string>;
  #told = 0;

  /**
   * Begins for a file that is open for reading until {@link end} has returned. Undefined if there is no room for a
   * thread: it would only take turns with this one.
   */
  static begin(fd: number): HashThread | undefined {
    try {
      return availableParallelism() > 1 ? new HashThread(fd) : undefined;
    } catch {
      return undefined;
    }
  }

  private constructor(fd: number) {
    this.#worker = new Worker(`(${follow.toString()})()`, {
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
    // Reported when the digest is requested.
    this.#digest.catch(() => undefined);
  }

  /** So many bytes of the file are written. */
  reached(length: number): void {
    if (length - this.#told < wakeBytes) return;
    this.#told = length;
    this.#tell({ length, isWhole: false });
  }

  /** The hash of the whole file, lower-case hexadecimal. @throws Error if the thread has failed. */
  digest(length: number): Promise<string> {
    this.#tell({ length, isWhole: true });
    this.#worker.ref();
    return this.#digest;
  }

  /** Ends the thread: it reads no more. */
  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #tell(written: Written): void {
    this.#worker.postMessage(written);
  }
}

// Runs in the thread, as text: it can use nothing of this file.
function follow(): void {
  const { createHash } = process.getBuiltinModule('node:crypto');
  const { readSync } = process.getBuiltinModule('node:fs');
  const { parentPort, ...thread } = process.getBuiltinModule('node:worker_threads');
  const fd = thread.workerData as number;
  const hash = createHash('sha256');
  const piece = Buffer.allocUnsafeSlow(256 * 1024);
  let at = 0;
  parentPort?.on('message', ({ length, isWhole }: Written) => {
    while (at < length) {
      const read = readSync(fd, piece, 0, Math.min(piece.length, length - at), at);
      if (read === 0) throw new Error('the file is shorter than what was written to it');
      hash.update(piece.subarray(0, read));
      at += read;
    }
    if (isWhole) parentPort.postMessage(hash.digest('hex'));
  });
}
