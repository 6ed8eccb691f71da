import { closeSync, fstatSync, ftruncateSync } from 'node:fs';
import { basename } from 'node:path';
import type { Clock } from '../clock.ts';
import { unlinkAll } from './claim-log.ts';
import { HashedFile } from './hashed-file.ts';
import { localError } from '../errors.ts';
import type { OpenedPart, OutputLock } from './output-lock.ts';
import type { SealedFile } from './whole-file.ts';
import { headBytes } from '../media/mp4.ts';

/** The size, in bytes, below which a file is hashed without a thread. */
const maxHashedInline = 32 * 1024 * 1024;
const syncBytes = 32 * 1024 * 1024;
const syncMs = 2000;

/**
 * A download's `.part` file. Resumes an earlier process's leftover, up to the bytes that are known to be on disk. Every
 * method throws MgwError('local_io') if the disk fails.
 */
export class PartFile {
  /** The size of the whole file, if a response has stated it. */
  total: number | undefined;
  readonly #file: HashedFile;
  readonly #lock: OutputLock;
  readonly #clock: Clock;
  #validator: string | undefined;
  #durable: number;
  #syncedAt: number;
  #syncing: Promise<void> | undefined;

  private constructor(file: HashedFile, lock: OutputLock, clock: Clock) {
    this.#file = file;
    this.#lock = lock;
    this.#clock = clock;
    this.#validator = lock.metadata.validator;
    this.total = lock.metadata.total;
    this.#durable = file.length;
    this.#syncedAt = clock.monotonic();
  }

  /** Opens the temporary file of an output that this process has locked. @throws MgwError('local_io') */
  static async open(lock: OutputLock, clock: Clock): Promise<PartFile> {
    try {
      const part = await lock.openPart();
      return new PartFile(
        new HashedFile(part.path, part.file, usableLength(part, lock), maxHashedInline),
        lock,
        clock,
      );
    } catch (error) {
      throw localError(error, lock.target, 'yes');
    }
  }

  get path(): string {
    return this.#file.path;
  }

  /** The file descriptor, for reading while the file is open. */
  get descriptor(): number {
    return this.#file.descriptor;
  }

  /** The number of bytes written, after {@link settle}. */
  get length(): number {
    return this.#file.length;
  }

  /** The validator for resuming the download; undefined if it cannot be resumed. */
  get validator(): string | undefined {
    return this.length >= headBytes ? this.#validator : undefined;
  }

  /** Discards the existing bytes, because they are broken or belong to a different representation. Starts again. */
  async restart(source: { validator?: string; total?: number } = {}): Promise<void> {
    await this.#syncing;
    await this.#file.restart();
    this.#validator = source.validator;
    this.total = source.total;
    await this.#note(0);
  }

  /** Appends a batch. Returns before the write has finished. */
  async write(batch: readonly Buffer[]): Promise<void> {
    await this.#file.write(batch);
    this.#checkpoint();
  }

  /** Waits for pending writes. */
  async settle(): Promise<void> {
    await this.#file.settle();
  }

  /** Makes the whole file durable, and returns its hash. Nothing may be written afterwards. */
  async seal(): Promise<SealedFile> {
    await this.#file.settle();
    await this.#syncing;
    const sealed = await this.#file.seal();
    await this.#note(sealed.bytes);
    return sealed;
  }

  /**
   * Closes the file. `whole`: this process will publish the file. `part`: a later run can continue it. `nothing`: the
   * file is removed.
   */
  async close(outcome: 'whole' | 'part' | 'nothing'): Promise<void> {
    try {
      await Promise.allSettled([this.#syncing, this.#file.settle()]);
      const isWorthKeeping = outcome === 'whole' || (outcome === 'part' && this.length > 0);
      if (!isWorthKeeping) unlinkAll(this.#lock.target, [basename(this.path)]);
      // An error here must not hide the error that ended the download. If the sync fails, only the
      // latest bytes are lost.
      else if (outcome === 'part') await this.#sync().catch(() => undefined);
    } finally {
      await this.#file.close();
    }
  }

  // Syncs while later batches are written, so that a system crash loses little and the last sync is short.
  #checkpoint(): void {
    const isDue =
      this.length - this.#durable >= syncBytes || this.#clock.monotonic() - this.#syncedAt >= syncMs;
    if (!isDue || this.#syncing !== undefined) return;
    const syncing = this.#file.settle().then(() => this.#sync());
    this.#syncing = syncing.then(() => (this.#syncing = undefined));
    // A disk reports a failure once, so the rejection is kept until a caller waits for it.
    this.#syncing.catch(() => undefined);
  }

  async #sync(): Promise<void> {
    const durable = await this.#file.sync();
    this.#syncedAt = this.#clock.monotonic();
    await this.#note(durable);
  }

  async #note(durable: number): Promise<void> {
    this.#durable = durable;
    const note = this.#lock.note({ validator: this.#validator, total: this.total, durable });
    await note.catch((error: unknown) => {
      throw localError(error, this.#lock.target, 'yes');
    });
  }
}

// Returns the number of bytes from an earlier run after which the download can resume, and truncates the file to that
// length. Only bytes that the earlier run's notes confirm are used.
function usableLength({ file, isNew }: OpenedPart, { metadata }: OutputLock): number {
  if (isNew) return 0;
  const { validator, total = Infinity, durable = 0 } = metadata;
  try {
    const { size } = fstatSync(file);
    const usable = Math.min(size, durable);
    const length = validator !== undefined && usable >= headBytes && usable <= total ? usable : 0;
    if (size > length) ftruncateSync(file, length);
    return length;
  } catch (error) {
    closeSync(file);
    throw error;
  }
}
