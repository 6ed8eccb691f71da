import { closeSync, fstatSync, ftruncateSync } from 'node:fs';
import { basename } from 'node:path';
import type { Clock } from '../clock.ts';
import { unlinkAll } from './claim-log.ts';
import { HashedFile } from './hashed-file.ts';
import { localError } from './local-error.ts';
import type { OpenedPart, OutputLock } from './output-lock.ts';
import type { SealedFile } from './whole-file.ts';
import { headBytes } from '../media/media-kind.ts';

/** Bytes; a thread is not begun for less. */
const maxHashedHere = 32 * 1024 * 1024;
const syncBytes = 32 * 1024 * 1024;
const syncMs = 2000;

/**
 * The `.part` file of a download: continued from what an earlier process left of the same, as far as that is known to
 * be on the disk. Every method throws MgwError('local_io') if the disk fails.
 */
export class PartFile {
  readonly #file: HashedFile;
  readonly #lock: OutputLock;
  readonly #clock: Clock;
  #validator: string | undefined;
  #total: number | undefined;
  #durable: number;
  #syncedAt: number;
  #syncing: Promise<void> | undefined;

  private constructor(file: HashedFile, lock: OutputLock, clock: Clock) {
    this.#file = file;
    this.#lock = lock;
    this.#clock = clock;
    this.#validator = lock.metadata.validator;
    this.#total = lock.metadata.total;
    this.#durable = file.length;
    this.#syncedAt = clock.monotonic();
  }

  /** Opens the part of an output that this process holds. @throws MgwError('local_io') */
  static async open(lock: OutputLock, clock: Clock): Promise<PartFile> {
    try {
      const part = await lock.openPart();
      return new PartFile(
        new HashedFile(part.path, part.file, keptLength(part, lock), maxHashedHere),
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

  /** For reading, as long as it is open. */
  get descriptor(): number {
    return this.#file.descriptor;
  }

  /** Bytes that are written, once {@link settle} has been awaited. */
  get length(): number {
    return this.#file.length;
  }

  /** The whole file's size if an answer told it. */
  get total(): number | undefined {
    return this.#total;
  }

  /** What a continuation must match; undefined if there is nothing that could be continued. */
  get validator(): string | undefined {
    return this.length >= headBytes ? this.#validator : undefined;
  }

  /** Begins anew: what was there is another representation, or broken. */
  async restart(about: { validator?: string; total?: number } = {}): Promise<void> {
    await this.#syncing;
    await this.#file.restart();
    this.#validator = about.validator;
    this.#total = about.total;
    await this.#note(0);
  }

  /** Learns the size from a continuation. */
  expect(total: number): void {
    this.#total = total;
  }

  /** Writes a batch after what is there. Returns while it is on its way. */
  async write(batch: readonly Buffer[]): Promise<void> {
    await this.#file.write(batch);
    this.#checkpoint();
  }

  /** Waits for what is on its way. */
  async settle(): Promise<void> {
    await this.#file.settle();
  }

  /** Makes the whole file durable and says what it is. Nothing may be written after that. */
  async seal(): Promise<SealedFile> {
    await this.#file.settle();
    await this.#syncing;
    const sealed = await this.#file.seal();
    await this.#note(sealed.bytes);
    return sealed;
  }

  /**
   * Lets go. `whole`: the part waits to be published by this process. `part`: what is there can be continued by
   * the next run, this one or another. `nothing`: it is worth nothing.
   */
  async close(kept: 'whole' | 'part' | 'nothing'): Promise<void> {
    try {
      await Promise.allSettled([this.#syncing, this.#file.settle()]);
      const isWorthKeeping = kept === 'whole' || (kept === 'part' && this.length > 0);
      if (!isWorthKeeping) unlinkAll(this.#lock.target, [basename(this.path)]);
      // The error that ended the download is the one to tell; older notes only cost what came since them.
      else if (kept === 'part') await this.#sync().catch(() => undefined);
    } finally {
      await this.#file.close();
    }
  }

  // While the next batches are written, so that a crash of the machine costs little and the last sync is short.
  #checkpoint(): void {
    const isDue =
      this.length - this.#durable >= syncBytes || this.#clock.monotonic() - this.#syncedAt >= syncMs;
    if (!isDue || this.#syncing !== undefined) return;
    const syncing = this.#file.settle().then(() => this.#sync());
    this.#syncing = syncing.then(() => (this.#syncing = undefined));
    // A disk tells a failure once: it stays here until someone waits for it.
    this.#syncing.catch(() => undefined);
  }

  async #sync(): Promise<void> {
    const durable = await this.#file.sync();
    this.#syncedAt = this.#clock.monotonic();
    await this.#note(durable);
  }

  async #note(durable: number): Promise<void> {
    this.#durable = durable;
    const note = this.#lock.note({ validator: this.#validator, total: this.#total, durable });
    await note.catch((error: unknown) => {
      throw localError(error, this.#lock.target, 'yes');
    });
  }
}

// What an earlier run left is taken over as far as its notes vouch for it.
function keptLength({ file, isNew }: OpenedPart, { metadata }: OutputLock): number {
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
