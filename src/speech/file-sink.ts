import { createHash, randomBytes, type Hash } from 'node:crypto';
import { copyFile, lstat, open, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MgwError, systemCode } from '../errors.ts';
import { localError } from '../http/local-error.ts';
import { makeDurableFolder } from '../ledger/durable-file.ts';
import { checkOutput, publish } from '../http/publish.ts';
import type { JobFile } from '../job.ts';
import { isIntact } from '../jobs/intact.ts';
import { BackgroundWriter } from './background-writer.ts';
import { sha256Of } from './hash.ts';
import type { AudioSink, Recovered } from './sink.ts';
import { wavHeader, wavHeaderBytes } from './wav.ts';

/** How a file of speech is made. */
export interface FileSinkOptions {
  /** Absolute path of the output. */
  target: string;
  /** Replaces what stands there. */
  force: boolean;
  mime: string;
  /** Puts a WAV header before the PCM that comes; hertz. */
  wavRate?: number;
  /** Where it is made, if not beside the target; what stands there was not paid for by itself, and is made anew. */
  part?: string;
}

interface OpenPart {
  file: FileHandle;
  writer: BackgroundWriter;
}

/**
 * Speech as a file: written to `NAME.part` beside the target as it arrives (`NAME.<chance>.part` where that name
 * is taken, since what an earlier run was billed for is never overwritten), published once it is whole.
 */
export class FileSink implements AudioSink {
  readonly #options: FileSinkOptions;
  #open: OpenPart | undefined;
  #part = '';
  #hash: Hash = createHash('sha256');
  /** Bytes of audio, a WAV header not counted. */
  #audio = 0;

  constructor(options: FileSinkOptions) {
    this.#options = options;
  }

  async open(): Promise<void> {
    if (this.#open !== undefined) return;
    const { target, force, wavRate, part } = this.#options;
    await checkOutput(target, { force });
    try {
      const { file, path } = part === undefined ? await openPart(target) : await openAnew(part);
      this.#part = path;
      this.#open = { file, writer: new BackgroundWriter(file) };
      if (wavRate !== undefined) await file.write(wavHeader(wavRate));
    } catch (error) {
      throw localError(error, target, 'no');
    }
  }

  async write(audio: Uint8Array): Promise<void> {
    const { writer } = this.#opened();
    try {
      await writer.write(audio);
    } catch (error) {
      throw localError(error, this.#part, 'yes');
    }
    this.#hash.update(audio);
    this.#audio += audio.length;
  }

  async complete(): Promise<JobFile> {
    const open = this.#opened();
    const { wavRate, mime } = this.#options;
    try {
      await open.writer.settle();
      if (wavRate !== undefined) await this.#endWav(open, wavRate);
      await open.file.sync();
    } catch (error) {
      throw localError(error, this.#part, 'yes');
    } finally {
      await this.#close();
    }
    const bytes = this.#audio + (wavRate === undefined ? 0 : wavHeaderBytes);
    const sha256 = wavRate === undefined ? this.#hash.digest('hex') : await sha256Of(this.#part);
    return { path: this.#part, bytes, sha256, mime };
  }

  async publish(kept: JobFile): Promise<JobFile> {
    const { target, force } = this.#options;
    await publish(kept.path, target, { force });
    if (kept.path === this.#part) this.#part = '';
    return { ...kept, path: target };
  }

  async abandon(): Promise<string | undefined> {
    const open = this.#open;
    if (open === undefined) return undefined;
    const { wavRate } = this.#options;
    await open.writer.settle().catch(() => undefined);
    // What came shall be playable; where the disk is full the header says "to the end" all the same.
    if (wavRate !== undefined && this.#audio > 0) await this.#endWav(open, wavRate).catch(() => undefined);
    await this.#close();
    if (this.#audio > 0) return this.#part;
    await rm(this.#part, { force: true });
    return undefined;
  }

  async discard(): Promise<void> {
    await this.#close();
    if (this.#part !== '') await rm(this.#part, { force: true });
    this.#part = '';
  }

  async leftOver(): Promise<string | undefined> {
    const part = `${this.#options.target}.part`;
    const standing = await lstat(part).catch(() => undefined);
    return standing?.isFile() && standing.size > 0 ? part : undefined;
  }

  async recover(candidates: readonly JobFile[]): Promise<Recovered | undefined> {
    const { target, force } = this.#options;
    const inPlace = candidates.map((file) => ({ ...file, path: target }));
    for (const file of inPlace) if (await isIntact(file)) return { file };
    for (const kept of candidates) {
      if (!(await isIntact(kept))) continue;
      if (kept.path.endsWith('.part')) return { file: await this.publish(kept) };
      await checkOutput(target, { force });
      return { file: await this.publish(await copyToPart(kept, target)) };
    }
    return undefined;
  }

  #opened(): OpenPart {
    if (this.#open === undefined)
      throw new MgwError('internal', 'speech was written to a file that is not open');
    return this.#open;
  }

  async #close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    await open?.writer.settle().catch(() => undefined);
    await open?.file.close();
  }

  // RIFF pads a chunk of an odd length; 16-bit samples have none, but what came is what came.
  async #endWav({ file, writer }: OpenPart, wavRate: number): Promise<void> {
    if (this.#audio % 2 === 1) await this.write(Buffer.alloc(1));
    await writer.settle();
    await file.write(wavHeader(wavRate, this.#audio), 0, wavHeaderBytes, 0);
  }
}

async function openPart(target: string): Promise<{ file: FileHandle; path: string }> {
  const plain = `${target}.part`;
  try {
    return { file: await open(plain, 'wx'), path: plain };
  } catch (error) {
    if (systemCode(error) !== 'EEXIST') throw error;
    const other = partName(target);
    return { file: await open(other, 'wx'), path: other };
  }
}

async function openAnew(path: string): Promise<{ file: FileHandle; path: string }> {
  await makeDurableFolder(dirname(path));
  return { file: await open(path, 'w', 0o666), path };
}

function partName(target: string): string {
  return join(dirname(target), `${basename(target)}.${randomBytes(3).toString('hex')}.part`);
}

async function copyToPart(kept: JobFile, target: string): Promise<JobFile> {
  const part = partName(target);
  try {
    await copyFile(kept.path, part);
    const file = await open(part, 'r+');
    await file.sync().finally(() => file.close());
  } catch (error) {
    throw localError(error, target, 'no');
  }
  return { ...kept, path: part };
}
