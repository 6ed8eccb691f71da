import { createHash, type Hash } from 'node:crypto';
import { unlink, type FileHandle } from 'node:fs/promises';
import type { Clock } from '../../clock.ts';
import { localError } from '../local-error.ts';
import { sidecarOf } from '../publish.ts';
import { headBytes } from './media-kind.ts';
import { writeNotes, type Notes } from './notes.ts';

/** What a whole file turned out to be. */
export interface Sealed {
  bytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
}

const pieceBytes = 1024 * 1024;
const syncBytes = 32 * 1024 * 1024;
const syncMs = 2000;

/** What a part works with. */
export interface PartOptions {
  clock: Clock;
  /** Called when another download may have the name. */
  letGo: () => void;
}

/**
 * A `.part` file that is being written, with its hash. While one batch is on its way to the disk the next may
 * be hashed. Every method throws MgwError('local_io') where the disk does.
 */
export class PartFile {
  readonly path: string;
  readonly #file: FileHandle;
  readonly #clock: Clock;
  readonly #letGo: () => void;
  /** Undefined where the part is this process's alone and is not continued by another. */
  #notes: Notes | undefined;
  #validator: string | undefined;
  #total: number | undefined;
  #hash: Hash = createHash('sha256');
  #length = 0;
  #durable = 0;
  #syncedAt: number;
  #writing: Promise<void> = Promise.resolve();
  #syncing: Promise<unknown> | undefined;

  private constructor(path: string, file: FileHandle, notes: Notes | undefined, options: PartOptions) {
    this.path = path;
    this.#file = file;
    this.#notes = notes;
    this.#clock = options.clock;
    this.#letGo = options.letGo;
    this.#syncedAt = options.clock.monotonic();
    this.#validator = notes?.validator;
    this.#total = notes?.total;
  }

  /** Takes an open file over, and keeps of it what the notes vouch for. @throws what the file system throws. */
  static async of(
    path: string,
    file: FileHandle,
    notes: Notes | undefined,
    options: PartOptions,
  ): Promise<PartFile> {
    const part = new PartFile(path, file, notes, options);
    try {
      await part.#adopt();
    } catch (error) {
      await file.close();
      throw error;
    }
    return part;
  }

  /** Bytes that are written and hashed, once {@link settle} has been awaited. */
  get length(): number {
    return this.#length;
  }

  /** The whole file's size where an answer told it. */
  get total(): number | undefined {
    return this.#total;
  }

  /** What a continuation must match; undefined where there is nothing that could be continued. */
  get validator(): string | undefined {
    return this.#length >= headBytes ? this.#validator : undefined;
  }

  /** Begins anew: what was there is another representation, or broken. */
  async restart(about: { validator?: string; total?: number } = {}): Promise<void> {
    await this.settle();
    await this.#disk(Promise.resolve(this.#syncing));
    await this.#disk(this.#file.truncate(0));
    this.#hash = createHash('sha256');
    this.#length = 0;
    this.#durable = 0;
    this.#validator = about.validator;
    this.#total = about.total;
    await this.#disk(this.#note(0));
  }

  /** Learns the size from a continuation. */
  expect(total: number): void {
    this.#total = total;
  }

  /** Writes a batch behind what is there. Returns while it is on its way; the next call waits for it. */
  async write(batch: Buffer[]): Promise<void> {
    await this.settle();
    this.#checkpoint();
    this.#writing = this.#append(batch);
    // The next call is told of a failure; until then it is not unhandled.
    this.#writing.catch(() => undefined);
    for (const chunk of batch) this.#hash.update(chunk);
  }

  /** Waits for what is on its way. */
  async settle(): Promise<void> {
    await this.#disk(this.#writing);
  }

  /** Makes the whole file durable and says what it is. Nothing may be written behind that. */
  async seal(): Promise<Sealed> {
    await this.settle();
    await this.#disk(Promise.resolve(this.#syncing));
    await this.#disk(this.#sync());
    return { bytes: this.#length, sha256: this.#hash.digest('hex') };
  }

  /**
   * Lets go. `whole`: the part waits to be published by this process. `part`: what is there can be continued by
   * the next run, this one or another. `nothing`: it is worth nothing.
   */
  async close(kept: 'whole' | 'part' | 'nothing'): Promise<void> {
    try {
      await Promise.allSettled([this.#writing, this.#syncing]);
      if (kept === 'part' && this.#notes !== undefined && this.#length > 0) await this.#release();
      else if (kept !== 'whole') await this.#remove();
      if (kept !== 'whole') this.#letGo();
    } finally {
      await this.#file.close();
    }
  }

  async #append(batch: Buffer[]): Promise<void> {
    let rest = batch;
    while (rest.length > 0) {
      const { bytesWritten } = await this.#file.writev(rest, this.#length);
      this.#length += bytesWritten;
      rest = behind(rest, bytesWritten);
    }
  }

  // Beside the writing, so that a crash of the machine costs little and the last sync is short.
  #checkpoint(): void {
    const isDue =
      this.#length - this.#durable >= syncBytes || this.#clock.monotonic() - this.#syncedAt >= syncMs;
    if (!isDue || this.#syncing !== undefined || this.#length === this.#durable) return;
    this.#syncing = this.#sync().then(() => (this.#syncing = undefined));
    // A disk tells a failure once: it stays here until someone waits for it.
    this.#syncing.catch(() => undefined);
  }

  async #sync(): Promise<void> {
    const length = this.#length;
    await this.#file.sync();
    this.#syncedAt = this.#clock.monotonic();
    await this.#note(length);
  }

  async #note(durable: number): Promise<void> {
    this.#durable = durable;
    if (this.#notes === undefined) return;
    this.#notes = { ...this.#notes, validator: this.#validator, total: this.#total, durable };
    await writeNotes(sidecarOf(this.path), this.#notes);
  }

  async #release(): Promise<void> {
    try {
      await this.#syncing;
      this.#notes = this.#notes && { ...this.#notes, owner: undefined };
      await this.#sync();
    } catch {
      // The error that ended the download is the one to tell; older notes only cost what came since them.
    }
  }

  async #remove(): Promise<void> {
    for (const path of this.#notes === undefined ? [this.path] : [this.path, sidecarOf(this.path)])
      await unlink(path).catch(() => undefined);
  }

  // Takes over what an earlier run left, as far as the notes vouch for it.
  async #adopt(): Promise<void> {
    const { size } = await this.#file.stat();
    const usable = Math.min(size, this.#notes?.durable ?? 0);
    const isUsable =
      this.#validator !== undefined && usable >= headBytes && usable <= (this.#total ?? Infinity);
    if (isUsable) await this.#hashPrefix(usable);
    this.#durable = this.#length;
    if (size > this.#length) await this.#file.truncate(this.#length);
  }

  async #hashPrefix(length: number): Promise<void> {
    const piece = Buffer.allocUnsafe(Math.min(length, pieceBytes));
    while (this.#length < length) {
      const wanted = Math.min(piece.length, length - this.#length);
      const { bytesRead } = await this.#file.read(piece, 0, wanted, this.#length);
      if (bytesRead === 0) throw new Error('it became shorter while it was read');
      this.#hash.update(piece.subarray(0, bytesRead));
      this.#length += bytesRead;
    }
  }

  async #disk<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      throw localError(error, this.path, 'yes');
    }
  }
}

function behind(chunks: Buffer[], bytes: number): Buffer[] {
  let left = bytes;
  // Where the first chunk with something left is found, `left` is that much below zero.
  const first = chunks.findIndex((chunk) => (left -= chunk.length) < 0);
  if (first === -1) return [];
  const cut = chunks[first]?.subarray(left) ?? Buffer.alloc(0);
  return [cut, ...chunks.slice(first + 1)];
}
